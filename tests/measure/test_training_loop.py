"""The emulated training loop on loaders of known rate; times are held to each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from preflight.measure.training_loop import Step, TrainingLoop

pytestmark = pytest.mark.timeout(60)


class Every:
    """A loader that needs so long for each batch; None for ever."""

    def __init__(self, seconds: float, batches: int | None = None) -> None:
        self._seconds, self._batches = seconds, batches

    def __iter__(self) -> Iterator[int]:
        number = 0
        while self._batches is None or number < self._batches:
            time.sleep(self._seconds)
            yield number
            number += 1


def wait(until: Callable[[], object]) -> None:
    while not until():
        time.sleep(0.005)


def run(loop: TrainingLoop, seconds: float) -> tuple[float, float]:
    """Let it run; when it was looked at."""
    wait(lambda: loop.batches > 2)
    since = time.monotonic()
    time.sleep(seconds)
    until = time.monotonic()
    loop.stop()
    return since, until


def test_a_loader_that_is_fast_enough_keeps_the_device_busy() -> None:
    loop = TrainingLoop(Every(0.0), batch_size=8, step_s=0.05)
    since, until = run(loop, 1.0)
    assert loop.busy_share(since, until) > 0.9
    assert loop.stalls(since).stalled_percent < 20


def test_a_loader_of_half_the_demand_keeps_it_busy_half_of_the_time() -> None:
    loop = TrainingLoop(Every(0.1), batch_size=8, step_s=0.05)
    since, until = run(loop, 1.5)
    supplied = (loop.batches - 3) * 0.05 / (until - since)
    assert loop.busy_share(since, until) == pytest.approx(supplied, abs=0.1)
    assert loop.busy_share(since, until) < 0.6
    stalls = loop.stalls(since)
    assert stalls.stalled_percent > 80 and stalls.longest_s >= 0.04


def test_loading_overlaps_with_the_step_unless_the_host_waits_for_it() -> None:
    """0.05 s to load and 0.05 s to train: together when they overlap, one after the other else."""
    shares = []
    for sync in (False, True):
        loop = TrainingLoop(Every(0.05), batch_size=8, step_s=0.05, sync_every_step=sync)
        shares.append(loop.busy_share(*run(loop, 1.5)))
    assert shares[1] < 0.6 < shares[0]


def test_the_host_is_one_step_ahead_and_no_more() -> None:
    loop = TrainingLoop(Every(0.0), batch_size=8, step_s=0.2)
    for _ in range(40):
        time.sleep(0.02)
        begun = sum(step.start <= time.monotonic() for step in loop.steps)
        assert loop.batches <= begun + 2  # the one that waits, and one begun since we looked
    loop.stop()


def test_what_was_consumed_grows_within_a_step() -> None:
    loop = TrainingLoop(Every(0.0), batch_size=1000, step_s=30.0)
    wait(lambda: loop.batches)
    first = loop.consumed()
    time.sleep(0.3)
    assert 0 < loop.consumed() - first < 500
    loop.stop()


def test_consumed_counts_every_step_once() -> None:
    loop = TrainingLoop(Every(0.0), batch_size=8, step_s=0.01)
    counts = []
    for _ in range(20):
        time.sleep(0.02)
        counts.append(loop.consumed())
    loop.stop()
    assert counts == sorted(counts)
    wait(lambda: not loop.thread.is_alive())
    time.sleep(0.05)
    assert loop.consumed() == 8 * len(loop.steps)


def test_jitter_varies_the_steps_around_their_length() -> None:
    loop = TrainingLoop(Every(0.0), batch_size=1, step_s=0.002, jitter_percent=20, seed=1)
    wait(lambda: loop.batches > 200)
    loop.stop()
    lengths = [step.end - step.start for step in loop.steps]
    assert sum(lengths) / len(lengths) == pytest.approx(0.002, rel=0.1)
    assert max(lengths) > 1.2 * min(lengths)


def test_a_loader_that_ends_is_begun_again_and_an_empty_one_is_an_error() -> None:
    loop = TrainingLoop(Every(0.0, batches=2), batch_size=1, step_s=0.001)
    wait(lambda: loop.batches > 5)
    loop.stop()
    empty = TrainingLoop([], batch_size=1, step_s=0.001)
    wait(lambda: empty.error)
    assert "no batch" in str(empty.error)


def test_it_stops_in_the_middle_of_a_long_step() -> None:
    loop = TrainingLoop(Every(0.0), batch_size=1, step_s=1000.0)
    wait(lambda: loop.batches == 2)
    loop.stop()
    loop.thread.join(5)
    assert not loop.thread.is_alive()


def test_shares_and_stalls_are_of_the_stretch_that_was_asked_for() -> None:
    loop = TrainingLoop([], batch_size=1, step_s=1.0)
    loop.steps = [Step(0.0, 10.0, 11.0), Step(1.0, 12.0, 13.0), Step(0.05, 13.05, 14.05)]
    assert loop.busy_share(10.5, 12.5) == pytest.approx((0.5 + 0.5) / 2)
    stalls = loop.stalls(since=12.0)
    assert (stalls.steps, stalls.stalled_percent, stalls.longest_s) == (2, 50.0, 1.0)
    assert loop.stalls(since=100.0).steps == 0
