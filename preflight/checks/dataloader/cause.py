"""Why a loader missed its limit, from what was seen while it ran: one row of the table of causes.

Pure. The rows are in `causes`; here stands what a verdict adds to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from preflight.checks.dataloader.advice import heavier
from preflight.checks.dataloader.case import Case
from preflight.checks.dataloader.causes import find
from preflight.checks.dataloader.reading import DataloaderReading
from preflight.checks.dataloader.signs import light
from preflight.judge import Miss
from preflight.outcome import Blame, Outcome


def of_undecided(seen: DataloaderReading, ranks: Sequence[DataloaderReading] = ()) -> Miss:
    """Why no verdict was possible, and what helps."""
    decision, rate = seen.decision, seen.supply_samples_per_s
    if seen.budget_spent:
        cause = (
            f"the run may read {seen.read_gib or 0:.2g} GiB of the data path for this rank "
            "(run.max_read_gib), which was too little to be sure"
        )
        return Miss(cause, "raise run.max_read_gib", Blame.SETUP)
    if decision is None or rate is None or rate.low is None:
        cause = f"too few samples in {seen.window_s:.0f} s to say how fast the loader is"
        return Miss(cause, "raise stats.max_s, or lower loader.batch_size", Blame.UNKNOWN)
    if decision.disturbed_blocks > decision.blocks / 4:
        cause = (
            f"others used CPU in {decision.disturbed_blocks} of {decision.blocks} blocks: the rate "
            "of this node alone could not be seen"
        )
        case = Case(seen, tuple(ranks))
        if light(case):
            return Miss(cause, heavier(case), cause_id="cpu_weight")
        remedy = "run the gate again when the neighbours are quiet"
        return Miss(cause, remedy, Blame.SHARED, cause_id="neighbours")
    high = "unknown" if rate.high is None else f"{rate.high:,.0f}"
    cause = f"too close to the limit: [{rate.low:,.0f}, {high}]"
    return Miss(cause, "raise stats.max_s, or give the loader some headroom", Blame.UNKNOWN)


def of_close(seen: DataloaderReading, ranks: Sequence[DataloaderReading] = ()) -> Miss:
    """Why a rate near the limit is only a warning."""
    rate, miss = seen.supply_samples_per_s, of_missing(seen, ranks)
    between = "" if rate is None or rate.low is None else f": at least {rate.low:,.0f} samples/s"
    return replace(miss, cause=f"too close to the limit to be sure{between}; {miss.cause}")


def of_missing(seen: DataloaderReading, ranks: Sequence[DataloaderReading] = ()) -> Miss:
    """Why the supply is too small, with the remedy that the arithmetic gives.

    The rule that decided has already left out or taken off what neighbours took: what is missing
    after that is this loader's own.

    Args:
        seen: of the rank that misses.
        ranks: the readings of all, where there are others.
    """
    case = Case(seen, tuple(ranks) or (seen,))
    row = find(case)
    return Miss(row.sentence(case), row.remedy(case), row.blame, cause_id=row.id)


def of_unbound(seen: DataloaderReading) -> Miss:
    """Why a loader did not run on the CPUs that the pod requests."""
    cause = (
        f"the loader could not be bound to the {seen.requested_cpus} CPUs that are requested, so "
        f"it had whatever neighbours leave idle of {seen.effective_cpus:g}"
    )
    remedy = "give the pod a CPU limit, or allow sched_setaffinity in its seccomp profile"
    return Miss(cause, remedy, Blame.SETUP, Outcome.WARN)
