"""What other settings of the loader would give: a search bounded in time, one trial at a time.

It runs when all loaders have ended and before anything else loads in this process: a data set that
was used here may not bear being forked. Nothing here judges. Importing this file imports torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from preflight.checks.contract import Unit
from preflight.checks.dataloader.evidence import Recommended, WhatIf
from preflight.checks.dataloader.evidence import Trial as TrialRecord
from preflight.checks.dataloader.what_if import call_of, notes_of, worth_it
from preflight.measure.burner import burning
from preflight.measure.counters import Counters
from preflight.measure.loader import OpenLoader
from preflight.measure.model_rate import Costs, cpus_needed, seconds_per_sample
from preflight.measure.read_budget import ReadBudget
from preflight.measure.reopen import reopened
from preflight.measure.room import refused
from preflight.measure.search import Seen, Setting, Space, chosen, next_setting
from preflight.measure.stage_rates import rate_of_blocks
from preflight.measure.stopping import Block
from preflight.measure.trial import FULL, Trial, measure
from preflight.model import Rate

_NO_NEED = "its workers wait for nothing but CPUs, and there are as many as CPUs"
_FIRST_S = 1.5  # a trial's start, warm-up and end, before one was seen
_AT_THE_PACE = 0.95
_SURELY = 1.05  # times the demand: a trial is short
# One rank alone is faster than among the others by no more than this where they share CPUs alone.
_SHARED = 1.15
_WAIT_SHARE = 0.1  # of the time in a worker: under it, storage is not what a sample waits for


@dataclass(frozen=True)
class AsItIs:
    """The loader whose verdict has been found."""

    opened: OpenLoader
    blocks: Sequence[Block]
    """Of one rank while all loaded."""
    costs: Costs | None
    """What a sample cost; None where that is hidden."""
    first_batch_s: float | None
    worker_gib: float | None
    """What a worker had to itself; None where that is hidden."""
    budget: ReadBudget
    """What this rank may read of the data path, in part used up."""
    pace_samples_per_s: float | None


@dataclass
class _Search:
    """What has been found so far."""

    seen: list[Seen] = field(default_factory=list)
    trials: list[tuple[Setting, Rate]] = field(default_factory=list)
    refused: dict[Setting, str] = field(default_factory=dict)
    reason: str | None = None
    failed: bool = False
    enough_per_s: float = math.inf
    """Where the loader misses what the GPU consumes: a rate that would surely do."""
    last_s: float = 0.0
    """How long the last trial took: fewer workers may be much quicker than many were."""


class Found(NamedTuple):
    """What the trials came to."""

    what_if: WhatIf
    recommended: Recommended | None
    """None where nothing was tried."""


def what_if(unit: Unit, now: AsItIs, until: float) -> Found:
    """Try other settings until `until` (monotonic). Never raises.

    For several ranks the first trial is the loader as it is, alone: where that is much faster than
    among the others, they share more than CPUs, and a trial of one rank says nothing of all.
    """
    found = _Search()
    with burning(unit.job.consumer.host_cpus) as burners:
        try:
            _search(unit, now, until, burners, found)
        except Exception as error:
            found.reason = _last_line(error)
    if len(found.trials) == 1 and found.reason is None and not found.refused:
        found.reason = _NO_NEED
    return Found(_record(unit, now, found), _recommended(unit, now, found))


def _search(unit: Unit, now: AsItIs, until: float, burners: list[int], found: _Search) -> None:
    job = now.opened.as_job(unit.job)
    base = Setting(now.opened.workers, now.opened.prefetch_factor or job.loader.prefetch_factor)
    ranks = unit.job.ranks
    if not now.blocks:
        found.reason = "the loader gave no rate to compare with"
        return
    undisturbed = [block.x * (1 - block.f) for block in now.blocks]
    among_others = rate_of_blocks(undisturbed, job.stats.alpha_pass)
    demand = unit.limits.demand_samples_per_s
    if demand is not None and among_others.value < unit.limits.min_feed_ratio * demand:
        found.enough_per_s = _SURELY * demand

    def fits(setting: Setting) -> bool:
        why = refused(unit, job, setting, now.worker_gib)
        if why is not None:
            found.refused[setting] = why
        return why is None

    def space() -> Space:
        cost, ratio = now.costs, None
        if cost is not None and cost.worker_cpu_s > 0:
            ratio = 1 + cost.wait_s / cost.worker_cpu_s
        return Space(unit.facts.cpu.effective / ranks, fits, ratio, found.enough_per_s)

    setting: Setting | None = base
    if ranks == 1 or not base.num_workers:
        cost, rate = now.costs, among_others.value
        full = cost is not None and rate * cost.cpu_s >= FULL * space().cpus
        found.seen.append(Seen(base, rate, full))
        found.trials.append((base, among_others))
        setting = next_setting(found.seen, space())
    while setting is not None:
        if now.budget.spent:
            found.reason = "the run may read no more of the data path (run.max_read_gib)"
            return
        if time.monotonic() + max(found.last_s, unit.job.stats.stage_s + _FIRST_S) > until:
            found.reason = None if len(found.trials) > 1 else "there was no time left for it"
            return
        unit.progress(
            f"trying {setting.num_workers} workers with prefetch_factor {setting.prefetch_factor}"
        )
        try:
            trial = _one(unit, now, setting, until, burners, found)
        except Exception as error:
            found.reason = _last_line(error)
            if setting == base or found.failed:
                return
            # One may be too many for this node: others are still worth a try.
            found.failed = True
            found.seen.append(Seen(setting, 0.0))
            found.refused[setting] = found.reason
            setting = next_setting(found.seen, space())
            continue
        found.reason = None
        if setting == base and trial.rate.value > _SHARED * among_others.value:
            found.reason = (
                f"this rank alone gives {trial.rate.value:,.0f} samples/s with the same settings: "
                f"the {ranks} ranks share more than CPUs, so one alone cannot tell what helps all"
            )
            return
        pace = now.pace_samples_per_s
        most = math.inf if pace is None else _AT_THE_PACE * pace
        if trial.rate.value >= min(most, found.enough_per_s):
            return
        setting = next_setting(found.seen, space())


def _one(
    unit: Unit, now: AsItIs, setting: Setting, until: float, burners: list[int], found: _Search
) -> Trial:
    opened, began = now.opened, time.monotonic()
    counters = Counters.create(setting.num_workers)
    seed = unit.job.seed + 1 + len(found.trials)
    loader = reopened(opened, unit.job, unit.rank, setting, counters, seed)
    pace, batch_size = now.pace_samples_per_s, opened.batch_size
    trial = measure(
        unit, loader, counters, burners, now.budget, until,
        pace / batch_size if pace and batch_size else None,
    )  # fmt: skip
    found.last_s = time.monotonic() - began
    found.seen.append(Seen(setting, trial.rate.value, trial.full, trial.idle))
    found.trials.append((setting, trial.rate))
    return trial


def _record(unit: Unit, now: AsItIs, found: _Search) -> WhatIf:
    job, limits, cost = unit.job, unit.limits, now.costs
    best = _best(found)
    needed = limits.demand_samples_per_s or limits.min_samples_per_s
    wanted = None
    if cost is not None:
        wanted = cpus_needed(cost, needed, job.ranks, job.consumer.host_cpus)
    more = [s for s in found.refused if best is None or s.num_workers > best.num_workers]
    fewest = min(more, key=lambda s: (s.num_workers, s.prefetch_factor), default=None)
    return WhatIf(
        trials=tuple(
            TrialRecord(
                num_workers=setting.num_workers, prefetch_factor=setting.prefetch_factor,
                samples_per_s=rate,
            )
            for setting, rate in found.trials
        ),
        cpus_needed=wanted,
        cached_samples_per_s=_cached(unit, now),
        notes=notes_of(
            persistent=now.opened.torch_loader.persistent_workers or not now.opened.workers,
            first_batch_s=now.first_batch_s,
            not_tried=None
            if fewest is None
            else (fewest.num_workers, fewest.prefetch_factor, found.refused[fewest]),
            copies=unit.earlier.get("pinned_copy") if _unpinned(unit, now.opened) else None,
        ),
        reason=found.reason,
    )  # fmt: skip


def _best(found: _Search) -> Setting | None:
    gave = [one for one in found.seen if one.samples_per_s]
    return chosen(gave, found.enough_per_s).setting if found.trials else None


def _recommended(unit: Unit, now: AsItIs, found: _Search) -> Recommended | None:
    best = _best(found)
    if best is None:
        return None
    return Recommended(
        num_workers=best.num_workers, prefetch_factor=best.prefetch_factor,
        samples_per_s=dict(found.trials)[best],
        call=_call(unit, now.opened, best) if _better(unit, found, best) else None,
    )  # fmt: skip


def _better(unit: Unit, found: _Search, best: Setting) -> bool:
    """Whether it is another setting than the job's, and worth the change."""
    (base, now), rates = found.trials[0], dict(found.trials)
    limits = unit.limits
    limit = limits.min_samples_per_s
    if limits.demand_samples_per_s is not None:
        limit = limits.min_feed_ratio * limits.demand_samples_per_s
    return best != base and worth_it(rates[best], now.value, limit)


def _last_line(error: Exception) -> str:
    """Of a worker's traceback: what it was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


def _call(unit: Unit, opened: OpenLoader, best: Setting) -> str:
    like, theirs = opened.torch_loader, opened.kind == "dataloader"
    return call_of(
        batch_size=opened.batch_size,
        own_batches=theirs and opened.batch_size is None and like.batch_sampler is not None,
        num_workers=best.num_workers,
        prefetch_factor=best.prefetch_factor if best.num_workers else None,
        pin_memory=like.pin_memory or unit.job.loader.pin_memory,
        persistent_workers=best.num_workers > 0 and opened.kind != "iterable_dataset",
    )


def _unpinned(unit: Unit, opened: OpenLoader) -> bool:
    return bool(unit.facts.gpus) and not opened.torch_loader.pin_memory


def _cached(unit: Unit, now: AsItIs) -> float | None:
    """The rate without the time in which our own reader waits; of anything else it is unknown.

    1 / S_model with no wait (model_rate.seconds_per_sample): what reading costs in CPU time stays.
    """
    cost, opened = now.costs, now.opened
    if cost is None or opened.source is None or unit.job.data is None:
        return None
    if cost.wait_s < _WAIT_SHARE * (cost.wait_s + cost.worker_cpu_s):
        return None
    cpus = unit.facts.cpu.effective / unit.job.ranks
    without = Costs(cost.worker_cpu_s, cost.main_cpu_s)
    return round(1 / seconds_per_sample(without, cpus, max(1, opened.workers)), 1)
