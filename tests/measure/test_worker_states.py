"""Looks at processes that stand for workers, where they are and what they wait for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.machine.root import Root, host
from preflight.measure.counters import Counters
from preflight.measure.worker_states import WorkerStates
from tests.fakes import write_machine
from tests.machine.test_process_states import STAT

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def counters() -> Iterator[Counters]:
    made = Counters.create(10)
    yield made
    made.close()


def worker(counters: Counters, number: int, pid: int) -> None:
    """As if a process with that number had taken the slot."""
    slot = counters.slot(number)
    slot._words[slot._first_word + 3] = pid


def machine(tmp_path: Path, state: str = "S") -> Root:
    files = {f"/proc/{pid}/stat": STAT.replace(" S ", f" {state} ") for pid in range(1, 11)}
    call = 207 if os.uname().machine == "aarch64" else 45  # recvfrom
    calls = {
        f"/proc/{pid}/syscall": f"{call} 0x3 0x0 0x0 0x0 0x0 0x0 0x0 0x0" for pid in range(1, 11)
    }
    return write_machine(tmp_path, files | calls)


def test_looks_belong_to_where_the_worker_was(tmp_path: Path, counters: Counters) -> None:
    for number in range(3):
        worker(counters, number, number + 1)
    counters.slot(0).enter_getitem(5)
    counters.slot(1).enter_collate(5)
    states = WorkerStates(machine(tmp_path), counters)
    states.look()
    assert states.tally().seen == {
        ("getitem", "socket"): 1, ("collate", "socket"): 1, ("between", "socket"): 1,
    }  # fmt: skip
    assert states.tally().uninterruptible == 0


def test_the_state_d_counts_inside_the_data_set_alone(tmp_path: Path, counters: Counters) -> None:
    worker(counters, 0, 1)
    worker(counters, 1, 2)
    counters.slot(0).enter_getitem(5)
    states = WorkerStates(machine(tmp_path, "D"), counters)
    states.look()
    assert states.tally().uninterruptible == 1


def test_many_workers_are_looked_at_in_turn(tmp_path: Path, counters: Counters) -> None:
    for number in range(10):
        worker(counters, number, number + 1)
    states = WorkerStates(machine(tmp_path), counters)
    states.look()
    assert sum(states.tally().seen.values()) == 8
    for _ in range(4):
        states.look()
    assert sum(states.tally().seen.values()) == 40


def test_neither_itself_nor_who_is_gone_or_has_not_started(counters: Counters) -> None:
    worker(counters, 0, os.getpid())
    worker(counters, 1, 2**22 + 1)
    states = WorkerStates(host(), counters)
    states.look()
    assert not states.tally().seen


def test_it_looks_from_begin_to_end_and_begins_anew(tmp_path: Path, counters: Counters) -> None:
    worker(counters, 0, 1)
    states = WorkerStates(machine(tmp_path), counters)
    states.begin()
    until = time.monotonic() + 10
    while not states.tally().seen and time.monotonic() < until:
        time.sleep(0.01)
    first = states.tally()
    assert first.seen
    states.begin()
    assert states.tally() is not first
    states.end()
    assert states._thread is not None
    states._thread.join(5)
    assert not states._thread.is_alive()
