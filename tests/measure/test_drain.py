"""Consumers of a loader, on iterables that need no worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from preflight.measure.drain import Drain

pytestmark = pytest.mark.timeout(30)


def wait(until: Callable[[], object]) -> None:
    while not until():
        time.sleep(0.01)


def test_a_loader_that_ends_is_begun_again() -> None:
    drain = Drain(range(3))
    wait(lambda: drain.batches > 10)
    drain.stop()
    assert drain.error is None and drain.first_batch_at is not None


def test_an_epoch_without_a_batch_does_not_go_on_for_ever() -> None:
    drain = Drain([])
    wait(lambda: drain.error is not None)
    assert "no batch" in str(drain.error)


def test_what_the_loader_raises_is_kept() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    class Once:
        def __iter__(self) -> Iterator[int]:
            return broken()

    drain = Drain(Once())
    wait(lambda: drain.error is not None)
    assert drain.batches == 1 and isinstance(drain.error, OSError)


def test_a_paced_consumer_takes_no_more_than_it_may() -> None:
    began = time.monotonic()
    drain = Drain(range(1000), most_batches_per_s=100)
    wait(lambda: drain.batches >= 20)
    drain.stop()
    # However slow the machine is: never faster than the pace, but for the one it may catch up.
    assert drain.batches <= 100 * (time.monotonic() - began) + 2


def test_a_paced_consumer_stops_at_once() -> None:
    drain = Drain(range(3), most_batches_per_s=0.001)
    wait(lambda: drain.batches)
    drain.stop()
    wait(lambda: not drain.thread.is_alive())
