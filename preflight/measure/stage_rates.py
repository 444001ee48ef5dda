"""From what one stage took to its rate, and which stage is the slowest. Pure.

Stages run one after another and share the CPUs: the slowest one's rate is no prediction of what
the loader supplies, which is lower.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from preflight.measure.stats import summary
from preflight.measure.stopping import FEWEST_BLOCKS
from preflight.model import Rate, Stage

_FAR_LESS = 2.0
"""Stages one after another are an estimate: loaders that they limit came within a third of it in
the staged cases, the others stayed far below it."""
BLOCKS = 12
"""So many blocks a stage is cut into: with half as much again as an interval needs, a slow sample
or two leave one."""


def rate_of_blocks(xs: Sequence[float], alpha: float) -> Rate:
    """1 / mean of at least one block's seconds per sample; ends only with FEWEST_BLOCKS.

    Both ends are one-sided at `alpha`, corrected as `stats.Summary.half_width` says.

    Raises:
        ValueError: all blocks took no time, by a clock that is too coarse.
    """
    mean = sum(xs) / len(xs)
    if mean <= 0:
        raise ValueError("no time was seen to pass")
    low = high = None
    if len(xs) >= FEWEST_BLOCKS:
        half = summary(xs).half_width(alpha)
        low, high = 1 / (mean + half), 1 / (mean - half) if mean > half else None
    return Rate(
        value=_cut(1 / mean), low=None if low is None else _cut(low),
        high=None if high is None else _cut(high), unit="samples/s", blocks=len(xs), discarded=0,
        samples=tuple(_cut(1 / x) for x in xs if x > 0),
    )  # fmt: skip


def rate_of_copies(copies: Rate, sample_bytes: int) -> Rate:
    """GB/s (1e9 bytes) as samples of so many bytes per second."""
    return _times(copies, 1e9 / sample_bytes)


def part_of(all_ranks: Rate, ranks: int) -> Rate:
    """One rank's part of a rate that all have together."""
    return _times(all_ranks, 1 / ranks)


def cut_arrivals(arrivals_s: Sequence[float], batch: int, workers: int) -> list[float]:
    """Seconds per sample in blocks of equally many batches; [] with fewer than two arrivals.

    Workers finish at much the same time, so batches come W at a time: where there are enough of
    them a block holds a multiple of W. What does not fill a block is left out at the beginning.
    """
    gaps = len(arrivals_s) - 1
    if gaps < 1:
        return []
    each = max(1, gaps // BLOCKS)
    if each > workers > 0:
        each -= each % workers
    blocks = min(BLOCKS, gaps // each)
    edges = arrivals_s[gaps - blocks * each :: each]
    return [(after - before) / (each * batch) for before, after in pairwise(edges)]


def limiting(stages: Sequence[Stage], supply_samples_per_s: float | None) -> str | None:
    """The stage with the lowest rate, where the stages can be what limits.

    None without any, and where the loader supplied far less than they would one after the other: it
    waited for what none of them shows (reads that were not measured alone, a lock, a device).
    """
    if not stages:
        return None
    alone = _one_by_one(stages)
    if alone and supply_samples_per_s is not None and supply_samples_per_s < alone / _FAR_LESS:
        return None
    return min(stages, key=lambda stage: stage.samples_per_s.value).name


def _one_by_one(stages: Sequence[Stage]) -> float:
    """Samples/s of a worker that goes through these stages; 0 without any but the copy.

    The copy to the GPU is made beside it, by the process that takes the batches.
    """
    in_worker = [stage.samples_per_s.value for stage in stages if stage.name != "copy"]
    seconds = sum(1 / rate for rate in in_worker if rate > 0)
    return 1 / seconds if seconds else 0.0


def _times(rate: Rate, factor: float) -> Rate:
    return Rate(
        value=_cut(rate.value * factor), low=None if rate.low is None else _cut(rate.low * factor),
        high=None if rate.high is None else _cut(rate.high * factor), unit="samples/s",
        blocks=rate.blocks, discarded=rate.discarded,
        samples=tuple(_cut(value * factor) for value in rate.samples),
    )  # fmt: skip


def _cut(value: float) -> float:
    """As a report shows it."""
    return round(value, 1 if value >= 100 else 4)
