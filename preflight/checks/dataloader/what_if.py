"""What the trials of other settings come to in words: advice, a call, what else would change. Pure.

The first of the trials is the loader as it is; whoever compares, compares with that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.checks.dataloader.evidence import Recommended
from preflight.checks.dataloader.more import crowded
from preflight.checks.dataloader.reading import DataloaderReading
from preflight.model import Rate

# Nothing is promised for rates within 5 % of each other, and a trial is short: twice that is clear.
_CLEARLY = 1.10
_CLEARLY_BY_FEW_BLOCKS = 1.5  # of a loader so slow that its trial gave no interval
_SURELY = 1.05  # of the limit; the interval of eight blocks is too wide to ask for more
_WORTH_A_NOTE_S = 0.2


def remedied(seen: DataloaderReading, remedy: str) -> str:
    """Settings that were seen to be enough, in place of the remedy that arithmetic gives."""
    best, tried = seen.recommended, seen.what_if
    if best is None or tried is None or not reaches(seen):
        return remedy
    now = tried.trials[0].samples_per_s.value
    gave = f"{_rate(best.samples_per_s)} samples/s when tried, {now:,.0f} now"
    return f"{_to_set(seen, best)} ({gave}){crowded(seen, best.num_workers)}"


def worth_it(best: Rate, now: float, limit: float) -> bool:
    """Whether settings are worth changing: they reach the limit, or are clearly faster."""
    clearly = _CLEARLY if best.low is not None else _CLEARLY_BY_FEW_BLOCKS
    return best.value >= min(limit, clearly * now)


def reaches(seen: DataloaderReading) -> bool:
    """Whether other settings than the job's were seen to reach the limit."""
    best = seen.recommended
    if best is None or _as_it_is(seen, best):
        return False
    return best.samples_per_s.value >= _SURELY * seen.limit_samples_per_s


def call_of(
    *,
    batch_size: int | None,
    own_batches: bool,
    num_workers: int,
    prefetch_factor: int | None,
    pin_memory: bool,
    persistent_workers: bool,
) -> str:
    """A DataLoader(...) to copy. `own_batches`: of a batch_sampler of the job's."""
    batches = "batch_sampler=batch_sampler" if own_batches else f"batch_size={batch_size}"
    arguments = ["dataset", batches, f"num_workers={num_workers}"]
    if prefetch_factor is not None:
        arguments.append(f"prefetch_factor={prefetch_factor}")
    if pin_memory:
        arguments.append("pin_memory=True")
    if persistent_workers:
        arguments.append("persistent_workers=True")
    return f"DataLoader({', '.join(arguments)})"


def notes_of(
    *,
    persistent: bool,
    first_batch_s: float | None,
    not_tried: tuple[int, int, str] | None,
    copies: Any,
) -> tuple[str, ...]:
    """What else would change, as far as it is known.

    Args:
        persistent: workers live on from one epoch to the next.
        first_batch_s: from the start of the workers to the first batch.
        not_tried: workers, prefetch factor and why they do not fit.
        copies: readings of pinned_copy, where the loader does not pin though there is a GPU.
    """
    notes = []
    if not persistent and first_batch_s is not None and first_batch_s >= _WORTH_A_NOTE_S:
        notes.append(f"persistent_workers=True saves up to {first_batch_s:.1f} s in every epoch")
    each = copies if isinstance(copies, list) else [copies]
    for seen in each[:1]:
        pinned, pageable = _copied(seen, "h2d_gb_per_s"), _copied(seen, "pageable_h2d_gb_per_s")
        if pinned and pageable:
            notes.append(f"pin_memory=True: {pinned:.1f} GB/s to the GPU instead of {pageable:.1f}")
    if not_tried is not None:
        workers, prefetch, why = not_tried
        notes.append(f"{workers} workers with prefetch {prefetch} were not tried: {why}")
    return tuple(notes)


def _copied(seen: Any, key: str) -> float | None:
    rate = seen.get(key) if isinstance(seen, Mapping) else None
    value = rate.get("value") if isinstance(rate, Mapping) else None
    return value if isinstance(value, float) else None


def _as_it_is(seen: DataloaderReading, best: Recommended) -> bool:
    own = (seen.num_workers, seen.prefetch_factor)
    return (best.num_workers, best.prefetch_factor) == own


def _to_set(seen: DataloaderReading, best: Recommended) -> str:
    """E.g. "set loader.num_workers to 12 and loader.prefetch_factor to 4"."""
    theirs = seen.dataset_kind == "dataloader"
    section, whose = ("", " of its DataLoader") if theirs else ("loader.", "")
    parts = []
    if best.num_workers != seen.num_workers:
        parts.append(f"{section}num_workers to {best.num_workers}")
    if seen.num_workers and best.prefetch_factor != seen.prefetch_factor:
        parts.append(f"{section}prefetch_factor to {best.prefetch_factor}")
    return f"set {' and '.join(parts)}{whose}"


def _rate(rate: Rate) -> str:
    spread = "" if rate.low is None else f" +- {rate.value - rate.low:,.0f}"
    return f"{rate.value:,.0f}{spread}"
