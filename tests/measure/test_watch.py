"""What a rank does beside the others, on rows that a test writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from preflight.measure import supply
from preflight.measure.counters import Counters
from preflight.measure.drain import Drain
from preflight.measure.loader import OpenLoader
from preflight.measure.watch import Watch
from preflight.roster import Roster, State
from tests.measure.test_supply import unit

pytestmark = pytest.mark.timeout(60)


DRAINS: list[Drain] = []


@pytest.fixture(autouse=True)
def drains_end() -> Iterator[None]:
    """One of nothing but numbers spins, and takes the interpreter from the tests behind it."""
    yield
    while DRAINS:
        DRAINS.pop().stop()


def ranks_of(tmp_path: Path, timeout_s: float = 60.0) -> tuple[Watch, Roster, Drain]:
    """Rank 0 of two, knowing its rate, and the row of rank 1."""
    roster = Roster.create(2)
    assert roster.fd is not None
    made = unit(tmp_path)
    limits = made.limits.model_copy(update={"timeout_s": timeout_s})
    made = replace(made, roster=Roster.inherited(roster.fd, 2, 0), limits=limits)
    opened = OpenLoader(
        loader=(), torch_loader=DataLoader([0]), counters=Counters.create(1), workers=1,
        batch_size=1, prefetch_factor=2,
    )  # fmt: skip
    watch = Watch(made, 1.0, lambda fields: None, opened, [])
    watch._consumer = drain = Drain(range(10))
    DRAINS.append(drain)
    return watch, Roster.inherited(roster.fd, 2, 1), drain


def test_it_goes_on_loading_until_the_others_know_their_rates(tmp_path: Path) -> None:
    watch, other, drain = ranks_of(tmp_path)
    other.tell(State.LOADING, [1])
    waiting = threading.Thread(target=watch.for_the_others, args=(True,))
    waiting.start()
    time.sleep(0.5)
    before = drain.batches
    time.sleep(0.2)
    assert waiting.is_alive() and drain.batches > before
    other.tell(State.NOT_REACHED, [1])
    waiting.join(5)
    assert not waiting.is_alive()
    assert other.states()[0] is State.REACHED


def test_it_does_not_wait_for_a_rank_that_ended(tmp_path: Path) -> None:
    watch, other, _ = ranks_of(tmp_path)
    other.close_row(1)
    watch.for_the_others(reached=False)
    assert other.states() == (State.NOT_REACHED, State.GONE)


def test_a_rank_that_hangs_does_not_take_its_siblings_time(tmp_path: Path) -> None:
    watch, other, _ = ranks_of(tmp_path, timeout_s=0.5)
    other.tell(State.LOADING, [1])
    watch.for_the_others(reached=True)
    assert other.states()[0] is State.REACHED


def test_the_window_does_not_open_before_all_ranks_load(tmp_path: Path) -> None:
    """A rank that is still alone would find the CPUs idle."""
    roster = Roster.create(2)
    assert roster.fd is not None
    made = replace(unit(tmp_path), roster=Roster.inherited(roster.fd, 2, 0))
    late = Roster.inherited(roster.fd, 2, 1)
    loads_at: list[float] = []

    def begin() -> None:
        loads_at.append(time.monotonic())
        late.tell(State.NOT_REACHED, [1])

    timer = threading.Timer(2.5, begin)
    timer.start()
    fields = supply.measure(made, 1.0, lambda fields: None)
    assert loads_at, "it had decided before the other rank loaded"
    assert fields["decision"].verdict == "reached"
