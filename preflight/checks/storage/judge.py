"""The storage check's verdict: what was seen in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.checks.storage.cause import of_cached, of_close, of_missing, of_undecided
from preflight.checks.storage.reading import StorageLimits, StorageReading
from preflight.diagnosis.data_paths import DATA_PATHS
from preflight.judge import Miss, at_most, holds, missed
from preflight.model import Finding
from preflight.outcome import Blame, Outcome


def judge(readings: Sequence[StorageReading], limits: StorageLimits) -> list[Finding]:
    """Hold the first-touch rate against what all ranks together need.

    Where memory may have answered the rate is an upper bound: a miss stays a miss, and what is
    reached is a warning, by the finding cache_state.
    """
    seen = readings[0]
    if seen.data_state != "ok":
        return [_data(seen)]
    findings = [_first_touch(seen, limits), _cache_state(seen)]
    if seen.unreadable_files:
        cause = f"{seen.unreadable_files} of the files could not be read"
        remedy = "look at their permissions and at the file system's errors (dmesg)"
        miss = Miss(cause, remedy, Blame.DATA, Outcome.WARN)
        findings.append(
            at_most(
                "storage.unreadable_files", seen.unreadable_files, 0, "files", miss,
                subject=seen.data,
            )
        )  # fmt: skip
    return findings


def _data(seen: StorageReading) -> Finding:
    row = DATA_PATHS[seen.data_state or "no_answer"]
    finding = Finding(
        id="storage.data", outcome=Outcome.PASS, subject=seen.data, observed=seen.data_state
    )
    return missed(finding, Miss(row.cause.format(path=seen.data), row.remedy, row.blame))


def _first_touch(seen: StorageReading, limits: StorageLimits) -> Finding:
    rate = seen.first_touch_samples_per_s
    by_demand = seen.demand_samples_per_s is not None
    finding = Finding(
        id="storage.first_touch", outcome=Outcome.PASS, subject=seen.data,
        observed=None if rate is None else rate.value, comparison="at_least",
        limit=round(seen.limit_samples_per_s, 1), unit="samples/s",
        source=limits.source("min_feed_ratio" if by_demand else "min_samples_per_s"),
    )  # fmt: skip
    if seen.decision is not None:
        verdict = seen.decision.verdict
    else:  # too little was seen for the stopping rule
        enough = rate is not None and rate.value >= seen.limit_samples_per_s
        verdict = "reached" if enough else "undecided"
    if verdict == "reached":
        return finding
    if verdict == "missed":
        return missed(finding, of_missing(seen))
    if verdict == "close" or seen.read_through_too_soon():
        return missed(finding, of_close(seen))
    return missed(finding, of_undecided(seen))


def _cache_state(seen: StorageReading) -> Finding:
    plain = seen.cache_state in ("cold", "memory")
    return holds("storage.cache_state", plain, seen.cache_state, of_cached(seen), subject=seen.data)
