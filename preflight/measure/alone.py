"""All stages of one rank's feed, one after the other, when the loaders of all ranks have ended.

Each takes a few seconds at most, and one that cannot be measured does not keep the others from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from preflight.checks.contract import Unit
from preflight.data.source import Source
from preflight.measure import stages, timed_stages
from preflight.measure.stages import Share, Tried, one, tried
from preflight.measure.transport import transport
from preflight.model import Stage


class Alone(NamedTuple):
    """What the stages came to."""

    stages: tuple[Stage, ...]
    """In the order in which a sample passes them."""
    missing: tuple[Tried, ...]
    """Those without a rate, with the reason."""


def measure_alone(
    unit: Unit,
    loader: DataLoader[Any],
    source: Source | None,
    gpu: str | None,
    samples_in: Callable[[Any], int] = one,
) -> Alone:
    """Measure every stage that there is. Never raises.

    Args:
        unit: the rank's; `earlier` may hold the readings of storage and pinned_copy.
        loader: the measured one; its workers have ended, and its data set may still be asked.
        source: encoded samples; None where the job's own data set loads them.
        gpu: the rank's GPU as pinned_copy names it, None without one.
        samples_in: samples in what a data set returns, where torch makes no batches of it.
    """
    job, stats, machine = unit.job, unit.job.stats, unit.machine
    share = Share(unit.facts.cpu.effective, job.ranks, max(1, loader.num_workers))

    def fetch() -> Stage | None:
        if source is not None and job.data is None:
            return timed_stages.fetch_generated(source, share, stats)
        return stages.fetch(unit.earlier.get("storage"), job.ranks) if source else None

    def decode() -> Stage:
        if source is None:
            return timed_stages.own_dataset(loader, share, stats, machine, samples_in)
        return timed_stages.decode(source, job.sample, job.seed, share, stats)

    def move() -> Stage:
        if source is None:
            item = timed_stages.first_item(loader, stats)
        else:
            item = torch.zeros(job.sample.shape, dtype=getattr(torch, job.sample.dtype))
        return transport(loader, item, share, stats, machine, samples_in)

    def copy() -> Stage | None:
        return stages.copy(unit.earlier.get("pinned_copy"), gpu, job.sample.tensor_bytes())

    every: dict[str, Callable[[], Stage | None]] = {
        "fetch": fetch, "decode": decode, "transport": move, "copy": copy,
    }  # fmt: skip
    seen = {}
    # Transport first: what decoding starts in this process its workers would be forked from.
    for name in ("transport", "fetch", "decode", "copy"):
        unit.progress(f"measuring {name} alone")
        seen[name] = tried(name, every[name])
    in_order = [seen[name] for name in every]
    found = tuple(stage.stage for stage in in_order if stage.stage is not None)
    missing = tuple(stage for stage in in_order if stage.stage is None)
    return Alone(found, missing)
