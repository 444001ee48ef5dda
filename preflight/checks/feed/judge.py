"""The feed check's verdict: what was seen in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.checks.feed.reading import FeedLimits, FeedReading
from preflight.judge import OUTCOME_OF, Miss, at_most, missed
from preflight.model import Finding
from preflight.outcome import Blame, Outcome


def judge(readings: Sequence[FeedReading], limits: FeedLimits) -> list[Finding]:
    """Hold each rank's loop against the limit: the slowest one sets the pace of all."""
    findings: list[Finding] = []
    for seen in readings:
        findings.append(_utilisation(seen, limits))
        if limits.max_longest_stall_s is not None and seen.longest_stall_s is not None:
            findings.append(_longest_stall(seen, limits.max_longest_stall_s, limits))
    return findings


def _utilisation(seen: FeedReading, limits: FeedLimits) -> Finding:
    finding = Finding(
        id="feed.utilisation", outcome=Outcome.PASS, subject=f"rank {seen.rank}",
        observed=seen.measured_utilisation_percent, comparison="at_least",
        limit=limits.min_utilisation_percent, unit="%",
        source=limits.source("min_utilisation_percent"),
    )  # fmt: skip
    verdict = "undecided" if seen.decision is None else seen.decision.verdict
    outcome = OUTCOME_OF[verdict]
    return finding if outcome is Outcome.PASS else missed(finding, _miss(seen, limits, outcome))


def _miss(seen: FeedReading, limits: FeedLimits, outcome: Outcome) -> Miss:
    """Whether too few samples are supplied, or enough of them too unevenly."""
    others = seen.disturbed_share or 0.0
    if outcome is not Outcome.FAIL and others >= seen.max_disturbance:
        cause = f"others used {others:.0%} of the CPUs while the loop ran"
        return Miss(cause, "repeat on a quiet node", Blame.SHARED, outcome)
    if outcome is Outcome.ERROR:
        cause = "too close to the limit, or too few steps, to be sure"
        return Miss(cause, "raise stats.max_s, or give the loader headroom", Blame.UNKNOWN, outcome)
    supply, demand = seen.supply_samples_per_s or 0.0, seen.demand_samples_per_s
    predicted = seen.predicted_utilisation_percent
    if predicted is not None and predicted < limits.min_utilisation_percent:
        cause = (
            f"the loader supplies {supply:,.0f} of {demand:,.0f} samples/s, so the GPU waits for "
            f"data in {seen.stalled_steps_percent or 0.0:.0f} % of its steps"
        )
        return Miss(cause, "do as dataloader says: its supply is what is missing", outcome=outcome)
    cause = (
        f"the loader alone supplies {supply:,.0f} samples/s, but in a training loop the GPU waited "
        f"in {seen.stalled_steps_percent or 0.0:.0f} % of its steps, "
        f"{seen.longest_stall_s or 0.0:.2f} s at the longest"
    )
    remedy = (
        "raise loader.prefetch_factor, so that more batches wait for the GPU, and look for "
        "samples that take much longer than others"
    )
    return Miss(cause, remedy, Blame.UNKNOWN, outcome)


def _longest_stall(seen: FeedReading, limit_s: float, limits: FeedLimits) -> Finding:
    stall_s = seen.longest_stall_s or 0.0
    cause = f"the GPU had to wait {stall_s:.2f} s for one batch"
    remedy = "raise loader.prefetch_factor, or look for samples that take much longer than others"
    return at_most(
        "feed.longest_stall", stall_s, limit_s, "s", Miss(cause, remedy, Blame.UNKNOWN),
        subject=f"rank {seen.rank}", source=limits.source("max_longest_stall_s"),
    )  # fmt: skip
