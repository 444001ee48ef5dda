"""Copies of a device of known speed: what is counted, pooled and asked. No time passes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from preflight.gpu_facts import PcieLink
from preflight.measure.copies import REST_S, Amount, Copies, best, rate_of
from preflight.measure.device import Copy

PIECE = 256 << 20


def link(gen: int | None, width: int | None) -> PcieLink:
    return PcieLink(gen=gen, width=width, max_gen=5, max_width=16, gpu_max_gen=5)


class KnownDevice:
    """Copies at `gb_per_s(copy, number of the piece)`, and remembers what it was asked."""

    def __init__(self, gb_per_s: Callable[[Copy, int], float]) -> None:
        self._gb_per_s = gb_per_s
        self.pieces: list[tuple[Copy, int]] = []
        self.before_copy: Callable[[], None] = lambda: None

    def arch_list(self) -> tuple[str, ...]:
        return ()

    def kernel(self, numbers: int) -> float:
        return 0.0

    def copy_seconds(self, copy: Copy, piece_bytes: int, pieces: int) -> list[float]:
        self.before_copy()
        seconds = []
        for _ in range(pieces):
            rate = self._gb_per_s(copy, len(self.pieces))
            self.pieces.append((copy, piece_bytes))
            seconds.append(piece_bytes / rate / 1e9)
        return seconds

    def verify(self, piece_bytes: int) -> bool:
        self.verified_bytes = piece_bytes
        return piece_bytes == PIECE


def copies(
    device: KnownDevice, sample: Callable[[], PcieLink | None] = lambda: None, **amount: float
) -> Copies:
    usual = {"piece_bytes": PIECE, "measure_s": 1.0, "wake_s": 0.0, **amount}
    return Copies(device, Amount(**usual), sample, sleep=lambda seconds: None)  # type: ignore[arg-type]


def test_the_rate_is_the_device_s_own() -> None:
    rate = copies(KnownDevice(lambda copy, piece: 53.1)).measure("pinned_h2d")
    assert (rate.value, rate.low, rate.high, rate.unit) == (53.1, 53.1, 53.1, "GB/s")
    assert rate.discarded == 0
    assert len(rate.samples) == rate.blocks >= 1.0 * 53.1e9 / PIECE


def test_the_first_pieces_and_a_sleeping_link_are_not_counted() -> None:
    """Gen1 for the first 0.3 s of copying, then awake."""
    device = KnownDevice(lambda copy, piece: 3.0 if piece < 4 else 50.0)
    seen = copies(device, wake_s=0.3)
    assert min(seen.measure("pinned_h2d").samples) == 50.0
    uncounted = len(device.pieces) - len(seen.measure("pinned_h2d").samples)
    assert uncounted < 60, "awake once, a later copy only warms up"


def test_three_pieces_warm_each_copy_up() -> None:
    device = KnownDevice(lambda copy, piece: 1.0 if piece < 3 else 40.0)
    assert min(copies(device).measure("pinned_d2h").samples) == 40.0


@pytest.mark.parametrize(("measure_s", "gb_per_s"), [(0.001, 50.0), (0.5, 6.0), (1.0, 50.0)])
def test_at_least_ten_pieces_and_the_time_asked_for(measure_s: float, gb_per_s: float) -> None:
    device = KnownDevice(lambda copy, piece: gb_per_s)
    rate = copies(device, measure_s=measure_s).measure("pinned_h2d")
    assert rate.blocks >= 10
    pieces = device.pieces[-rate.blocks :]
    assert sum(size for _, size in pieces) / gb_per_s / 1e9 >= measure_s or rate.blocks == 10


def test_a_crawling_link_is_measured_in_smaller_pieces() -> None:
    """A quarter of a GB/s: whole pieces would take a second each, and the check its time limit."""
    device = KnownDevice(lambda copy, piece: 0.25)
    seen = copies(device)
    for copy in ("pinned_h2d", "pinned_d2h", "pageable_h2d"):
        assert seen.measure(copy).value == 0.25
    assert sum(size for _, size in device.pieces) / 0.25e9 < 7.0


def test_one_slow_first_piece_shrinks_none_of_the_counted() -> None:
    device = KnownDevice(lambda copy, piece: 0.2 if piece < 1 else 50.0)
    rate = copies(device, wake_s=0.0).measure("pinned_h2d")
    assert {size for _, size in device.pieces[-rate.blocks :]} == {PIECE}


def test_a_second_look_counts_as_much_as_the_first_however_many_pieces_it_has() -> None:
    fast = threading.Event()
    device = KnownDevice(lambda copy, piece: 50.0 if fast.is_set() else 25.0)
    seen = copies(device, measure_s=0.5)
    first = seen.measure("pinned_h2d")
    seen.rest()
    fast.set()
    pooled = seen.measure("pinned_h2d")
    assert first.blocks > 10
    assert pooled.samples == (25.0,) * first.blocks + (50.0,) * first.blocks
    assert (first.value, pooled.value) == (25.0, 37.5)


def test_after_a_rest_the_link_is_woken_again() -> None:
    device, slept = KnownDevice(lambda copy, piece: 50.0), list[float]()
    seen = Copies(device, Amount(PIECE, 0.1, 0.3), lambda: None, sleep=slept.append)
    seen.measure("pinned_h2d")
    first = len(device.pieces)
    seen.measure("pinned_d2h")
    second = len(device.pieces) - first
    seen.rest()
    seen.measure("pinned_h2d")
    assert len(device.pieces) - first - second == first > second
    assert slept == [REST_S]


@pytest.mark.timeout(20)
def test_the_link_is_asked_while_pinned_memory_is_copied() -> None:
    """From idle Gen1 to Gen5, which is lost again at the end: the best counts."""
    told = [link(1, 16), link(5, 8), link(5, 16), None, link(4, 16)]
    asked = threading.Semaphore(0)

    def sample() -> PcieLink | None:
        asked.release()
        return told.pop(0) if told else link(4, 8)

    device = KnownDevice(lambda copy, piece: 50.0)
    device.before_copy = lambda: told and asked.acquire()  # type: ignore[assignment,func-returns-value]
    seen = copies(device, sample)
    seen.measure("pinned_h2d")
    while told:
        seen.measure("pinned_h2d")
    assert seen.link() == link(5, 16)


def test_the_link_is_not_asked_in_pageable_copies() -> None:
    seen = copies(KnownDevice(lambda copy, piece: 8.0), lambda: link(1, 1))
    seen.measure("pageable_h2d")
    assert seen.link() is None
    seen.measure("pinned_h2d")
    assert seen.link() == link(1, 1)


def test_no_thread_asks_on_after_a_copy_that_failed() -> None:
    device = KnownDevice(lambda copy, piece: 1 / 0)
    threads = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        copies(device, lambda: None).measure("pinned_h2d")
    assert threading.active_count() == threads


def test_a_whole_piece_is_verified() -> None:
    device = KnownDevice(lambda copy, piece: 0.25)
    seen = copies(device)
    seen.measure("pinned_h2d")
    assert seen.verify()
    assert device.verified_bytes == PIECE


def test_the_median_and_the_outer_tenths() -> None:
    rate = rate_of([float(n) for n in range(1, 12)])
    assert (rate.low, rate.value, rate.high) == (2.0, 6.0, 10.0)
    assert rate_of([10.0] * 9 + [1.0]).value == 10.0, "one stalled piece is no verdict"


def test_the_best_link_is_put_together_field_by_field() -> None:
    assert best([]) is None
    assert best([link(None, 16), link(4, None)]) == link(4, 16)
    nothing = link(None, None)
    assert best([nothing]) == nothing
