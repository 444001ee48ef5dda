"""Why a loader missed its limit, from what was counted while it ran. Pure.

Only what the counters prove is named: all of the CPUs used, a quota that throttles, others on the
CPUs, workers that leave CPUs idle. Stages and waits are told apart by a later check.
"""

from __future__ import annotations

import math

from preflight.checks.dataloader.reading import DataloaderReading
from preflight.judge import Miss
from preflight.outcome import Blame, Outcome

_ALL_OF_THE_CPUS = 0.95
_THROTTLED_PERCENT = 10.0  # of the CFS periods: less is the odd burst, not the limit


def of_undecided(seen: DataloaderReading) -> Miss:
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
        return Miss(cause, "run the gate again when the neighbours are quiet", Blame.SHARED)
    high = "unknown" if rate.high is None else f"{rate.high:,.0f}"
    cause = f"too close to the limit: [{rate.low:,.0f}, {high}]"
    return Miss(cause, "raise stats.max_s, or give the loader some headroom", Blame.UNKNOWN)


def of_close(seen: DataloaderReading) -> Miss:
    """Why a rate near the limit is only a warning."""
    rate, others = seen.supply_samples_per_s, seen.disturbed_share or 0.0
    between = "" if rate is None or rate.low is None else f": at least {rate.low:,.0f} samples/s"
    cause = f"too close to the limit to be sure{between}"
    if others >= seen.max_disturbance:
        cause += f", while others used {others:.0%} of the CPUs"
        return Miss(cause, "repeat on a quiet node, or give the job its own CPUs", Blame.SHARED)
    miss = of_missing(seen)
    return Miss(f"{cause}; {miss.cause}", miss.remedy, miss.blame)


def of_missing(seen: DataloaderReading) -> Miss:
    """Why the supply is too small, with the remedy that the arithmetic gives.

    The rule that decided has already left out or taken off what neighbours took: what is missing
    after that is this loader's own.
    """
    cpus, others = seen.effective_cpus, seen.disturbed_share or 0.0
    workers = seen.ranks * max(1, seen.num_workers)
    who = "the loader workers" + (f" of {seen.ranks} ranks" if seen.ranks > 1 else "")
    own = (seen.own_cpu_share or 0.0) / max(1 - others, 0.01)
    corrected = f" (others' {others:.0%} left out)" if others >= seen.max_disturbance else ""
    throttled = (seen.throttled_percent or 0.0) > _THROTTLED_PERCENT
    if seen.quota_cpus is not None and (own >= _ALL_OF_THE_CPUS or throttled):
        cause = f"{who} used all of the {seen.quota_cpus:g}-CPU quota{corrected}"
        return Miss(cause, _more_cpus(seen, cpus))
    if own >= _ALL_OF_THE_CPUS:
        which = "they may run on" if seen.bound_cpus is None else "that the pod requests"
        cause = f"{who} used all {cpus:g} CPUs {which}{corrected}"
        return Miss(cause, _more_cpus(seen, cpus))
    if own * cpus / workers >= _ALL_OF_THE_CPUS or workers < math.floor(cpus):
        cause = f"{workers} workers used {own:.0%} of {cpus:g} CPUs{corrected}"
        most = math.ceil(cpus / seen.ranks)
        key = (
            "num_workers of its DataLoader"
            if seen.dataset_kind == "dataloader"
            else ("loader.num_workers")
        )
        remedy = f"set {key} to {most}" if most > seen.num_workers else ""
        rate = seen.supply_samples_per_s
        if rate is None or rate.value * cpus / workers < seen.limit_samples_per_s:
            remedy = " and ".join(part for part in (remedy, _more_cpus(seen, own * cpus)) if part)
        return Miss(cause, remedy)
    cause = f"the workers waited: they used only {own:.0%} of {cpus:g} CPUs{corrected}"
    remedy = "look at what they wait for: storage, a lock in the data set, a file server"
    return Miss(cause, remedy, Blame.UNKNOWN)


def of_unbound(seen: DataloaderReading) -> Miss:
    """Why a loader did not run on the CPUs that the pod requests."""
    cause = (
        f"the loader could not be bound to the {seen.requested_cpus} CPUs that are requested, so "
        f"it had whatever neighbours leave idle of {seen.effective_cpus:g}"
    )
    remedy = "give the pod a CPU limit, or allow sched_setaffinity in its seccomp profile"
    return Miss(cause, remedy, Blame.SETUP, Outcome.WARN)


def _more_cpus(seen: DataloaderReading, cpus: float) -> str:
    """CPUs needed, by the rate that the loader gave with `cpus` of them."""
    rate = seen.supply_samples_per_s
    needed = seen.demand_samples_per_s or seen.limit_samples_per_s
    if rate is None or rate.value <= 0:
        return "give the container more CPUs"
    exact = needed / rate.value * cpus
    give = "give the container" if seen.bound_cpus is None else "request"
    return (
        f"{give} {math.ceil(exact)} CPUs "
        f"({needed:,.0f} / {rate.value:,.1f} x {cpus:.3g} = {exact:.1f})"
    )
