"""The dataloader check's verdict: what was seen in, findings out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from preflight.checks.dataloader.cause import of_close, of_missing, of_unbound, of_undecided
from preflight.checks.dataloader.reading import DataloaderLimits, DataloaderReading
from preflight.checks.dataloader.start_up import start_up
from preflight.checks.dataloader.what_if import remedied
from preflight.diagnosis.data_paths import DATA_PATHS
from preflight.judge import OUTCOME_OF, Miss, at_least, at_most, holds, missed
from preflight.model import Finding
from preflight.outcome import Blame, Outcome


def judge(readings: Sequence[DataloaderReading], limits: DataloaderLimits) -> list[Finding]:
    """Hold each rank's loader against the limit: the slowest one sets the pace of all."""
    for seen in readings:
        if seen.data_state not in (None, "ok"):
            return [_data(seen)]
    tried = next((seen for seen in readings if seen.what_if is not None), None)  # one rank does
    if tried is not None:
        found = {"what_if": tried.what_if, "recommended": tried.recommended}
        readings = [seen.model_copy(update=found) for seen in readings]
    slowest = min(readings, key=_rate)
    findings = [
        finding for seen in readings for finding in _judge_rank(seen, limits, slowest, readings)
    ]
    loaded = [seen for seen in readings if not seen.without_demand()]
    return [*findings, *_corrupt(loaded, limits), *_contended(loaded)]


def _rate(seen: DataloaderReading) -> float:
    return math.inf if seen.supply_samples_per_s is None else seen.supply_samples_per_s.value


def _judge_rank(
    seen: DataloaderReading,
    limits: DataloaderLimits,
    slowest: DataloaderReading,
    readings: Sequence[DataloaderReading],
) -> list[Finding]:
    rank = f"rank {seen.rank}"
    if seen.without_demand():
        return [_unknown_demand(seen, rank)]
    findings = [_supply(seen, limits, slowest, readings)]
    if seen.requested_cpus is not None:
        bound, miss = seen.bound_cpus, of_unbound(seen)
        findings.append(
            holds("dataloader.cpu_request", bound is not None, bound, miss, "CPUs", rank)
        )
    findings += _reference(seen, limits, rank)
    return [*findings, *start_up(seen, limits)]


def _data(seen: DataloaderReading) -> Finding:
    assert seen.data_state is not None
    row = DATA_PATHS[seen.data_state]
    finding = Finding(
        id="dataloader.data", outcome=Outcome.PASS, subject=seen.data, observed=seen.data_state
    )
    return missed(finding, Miss(row.cause.format(path=seen.data), row.remedy, row.blame))


def _supply(
    seen: DataloaderReading,
    limits: DataloaderLimits,
    slowest: DataloaderReading,
    readings: Sequence[DataloaderReading],
) -> Finding:
    rate, demand = seen.supply_samples_per_s, seen.demand_samples_per_s
    finding = Finding(
        id="dataloader.supply", outcome=Outcome.PASS, subject=f"rank {seen.rank}",
        observed=None if rate is None else rate.value, comparison="at_least",
        limit=round(seen.limit_samples_per_s, 1), unit="samples/s",
        source=limits.source("min_feed_ratio" if demand else "min_samples_per_s"),
    )  # fmt: skip
    verdict = "undecided" if seen.decision is None else seen.decision.verdict
    outcome = OUTCOME_OF[verdict]
    if outcome is Outcome.PASS:
        return finding
    # Ranks that miss miss for one reason, and what helps the slowest helps all.
    alike = slowest.decision is not None and slowest.decision.verdict == verdict
    why = {"undecided": of_undecided, "close": of_close}.get(verdict, of_missing)
    told = slowest if alike else seen
    miss = why(told, readings)
    if outcome is Outcome.FAIL and miss.cause_id != "slow_rank":  # more workers only hide that
        miss = replace(miss, remedy=remedied(told, miss.remedy))
    return missed(finding, replace(miss, outcome=outcome))


def _corrupt(readings: Sequence[DataloaderReading], limits: DataloaderLimits) -> list[Finding]:
    """Of the rank that met most of them: ranks draw from the same samples.

    In a data set of the job's own they are the samples that raised; of an IterableDataset none is
    counted, since it ends at the first.
    """
    ours = [seen for seen in readings if seen.dataset is None or seen.corrupt_samples]
    if not ours:
        return []
    seen = max(ours, key=lambda seen: seen.corrupt_percent)
    miss = _of_corrupt(seen)
    percent = round(seen.corrupt_percent, 2)
    finding = at_most(
        "dataloader.corrupt_samples", percent, limits.max_corrupt_percent, "%", miss,
        subject=seen.data, source=limits.source("max_corrupt_percent"),
    )  # fmt: skip
    if finding.outcome is Outcome.PASS and seen.corrupt_samples:
        return [missed(finding, replace(miss, outcome=Outcome.WARN))]
    return [finding]


def _of_corrupt(seen: DataloaderReading) -> Miss:
    if seen.dataset is None:
        named = ", ".join(seen.corrupt_files)
        cause = f"{seen.corrupt_samples} samples could not be read or decoded, among them {named}"
        remedy = "replace these files, or raise dataloader.max_corrupt_percent if they are known"
        return Miss(cause, remedy, Blame.DATA)
    one = next(iter(seen.corrupt_files), "")
    cause = f"{seen.corrupt_samples} samples of {seen.dataset} raised, among them {one}"
    remedy = "replace what they are read from, or let the data set skip it: training ends at one"
    return Miss(cause, remedy, Blame.DATA)


def _unknown_demand(seen: DataloaderReading, rank: str) -> Finding:
    finding = Finding(id="dataloader.demand", outcome=Outcome.PASS, subject=rank)
    cause = f"nothing says how many samples/s this GPU consumes in {seen.workload}"
    remedy = (
        "name the GPU (--gpu NAME; `preflight thresholds list` shows which are known) or give the "
        "number: --set dataloader.demand_samples_per_s=N"
    )
    return missed(finding, Miss(cause, remedy, Blame.SETUP, Outcome.ERROR))


def _reference(seen: DataloaderReading, limits: DataloaderLimits, rank: str) -> list[Finding]:
    """Without a workload: the reference image against this GPU's table, at most a warning."""
    reference, rate = limits.reference_demand_samples_per_s, seen.supply_samples_per_s
    if reference is None or rate is None:
        return []
    cause = "no workload was named; ResNet-50 on this GPU would have to wait for its data"
    remedy = "name the job's workload (--workload) to have its supply judged"
    miss = Miss(cause, remedy, Blame.SETUP, Outcome.WARN)
    return [
        at_least(
            "dataloader.reference", rate.value, round(limits.min_feed_ratio * reference, 1),
            "samples/s", miss, subject=rank,
        )
    ]  # fmt: skip


def _contended(readings: Sequence[DataloaderReading]) -> list[Finding]:
    """What others took while a verdict was wanting, as the rank saw it that lost most."""
    wanting = [
        seen for seen in readings if seen.decision is None or seen.decision.verdict != "reached"
    ]
    worst = max(wanting, key=lambda seen: seen.disturbed_share or 0.0, default=None)
    if worst is None or (worst.disturbed_share or 0.0) < worst.max_disturbance:
        return []
    cause = f"others used {worst.disturbed_share:.0%} of the CPUs while the loader ran"
    remedy = "repeat on a quiet node, or give the job CPUs of its own (cpuset)"
    return [
        at_most(
            "dataloader.contended", round(100 * (worst.disturbed_share or 0.0), 1),
            100 * worst.max_disturbance, "% of the CPUs",
            Miss(cause, remedy, Blame.SHARED, Outcome.WARN),
        )
    ]  # fmt: skip
