"""The pinned_copy check's verdict, GPU by GPU: what was seen in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.checks.pinned_copy import link
from preflight.checks.pinned_copy.cause import (
    of_no_gain,
    of_reduced_link,
    of_slow,
    slower_slot,
)
from preflight.checks.pinned_copy.fraction import fraction, skipped, steady
from preflight.checks.pinned_copy.reading import PinnedCopyLimits, PinnedCopyReading
from preflight.diagnosis.cuda_circumstances import Around
from preflight.diagnosis.cuda_codes import explain
from preflight.judge import Miss, at_least, holds, missed
from preflight.model import Finding, Rate
from preflight.outcome import Blame, Outcome


def judge(readings: Sequence[PinnedCopyReading], limits: PinnedCopyLimits) -> list[Finding]:
    """Hold each GPU's copies against its link and the floors."""
    return [finding for seen in readings for finding in _judge_gpu(seen, limits)]


def _judge_gpu(seen: PinnedCopyReading, limits: PinnedCopyLimits) -> list[Finding]:
    if seen.error is not None:
        return [_refused(seen)]
    findings = []
    for direction, rate in (("h2d", seen.h2d_gb_per_s), ("d2h", seen.d2h_gb_per_s)):
        if rate is not None:
            findings.append(fraction(direction, rate, seen, limits))
            findings += _floor(direction, rate, seen, limits)
    findings += steady(seen, limits)
    findings.append(_verified(seen))
    findings += _pageable_ratio(seen, limits)
    findings.append(_link_below_capability(seen, limits))
    return findings


def _refused(seen: PinnedCopyReading) -> Finding:
    fault = explain(seen.error_code, seen.error or "", Around(worked_before=True))
    finding = Finding(
        id="pinned_copy.copied", outcome=Outcome.PASS, subject=seen.subject, observed=fault.title
    )
    cause = f"{fault.cause} (while {seen.error_step})"
    return missed(finding, Miss(cause, fault.remedy, fault.blame, fault.outcome))


def _floor(
    direction: str, rate: Rate, seen: PinnedCopyReading, limits: PinnedCopyLimits
) -> list[Finding]:
    """The absolute floor, where one is set: a site's own fails, a shipped one warns."""
    key = f"min_{direction}_gb_per_s"
    floor: float | None = getattr(limits, key)
    own = link.site_floor(key, limits) is not None
    # A model's floor is for its full link: a slower slot or no such link is no miss of the card.
    elsewhere = seen.no_link_verdict is not None or slower_slot(seen)
    if floor is None or (elsewhere and not own):
        return []
    whose = "this site's" if own else "this GPU model's"
    miss = of_slow(seen, f"under {whose} floor", Outcome.FAIL if own else Outcome.WARN)
    return [
        at_least(
            f"pinned_copy.{direction}_floor", rate.value, floor, "GB/s", miss,
            subject=seen.subject, source=limits.source(key),
        )
    ]  # fmt: skip


def _verified(seen: PinnedCopyReading) -> Finding:
    cause = "bytes came back from the GPU other than they were sent"
    remedy = (
        "take the node out of service: training on it is silently wrong; look for Xid and AER "
        "lines in the host's dmesg and run dcgmi diag -r 3"
    )
    miss = Miss(cause, remedy, Blame.NODE)
    ok = seen.verified is True
    return holds("pinned_copy.verified", ok, seen.verified, miss, subject=seen.subject)


def _pageable_ratio(seen: PinnedCopyReading, limits: PinnedCopyLimits) -> list[Finding]:
    pinned, pageable = seen.h2d_gb_per_s, seen.pageable_h2d_gb_per_s
    limit = limits.warn_pinned_over_pageable
    if pinned is None or pageable is None or limit is None:
        return []
    id = "pinned_copy.pageable_ratio"
    if seen.no_link_verdict is not None:
        return [skipped(id, seen, seen.no_link_verdict)]
    ratio = round(pinned.value / pageable.value, 2)
    source = limits.source("warn_pinned_over_pageable")
    return [
        at_least(
            id, ratio, limit, "times the pageable rate", of_no_gain(seen), subject=seen.subject,
            source=source,
        )
    ]  # fmt: skip


def _link_below_capability(seen: PinnedCopyReading, limits: PinnedCopyLimits) -> Finding:
    id = "pinned_copy.link_below_capability"
    if seen.no_link_verdict is not None:
        return skipped(id, seen, seen.no_link_verdict)
    if seen.link is None or seen.link_seen != "during the copy":
        return skipped(id, seen, "NVML does not tell the link during the copy")
    best = link.best_link_fails_under(seen.link, limits)
    observed = link.name(seen.link.gen, seen.link.width)
    if note := slower_slot(seen):
        observed += f", {note}"
    ok = not link.is_reduced_under_load(seen)
    return holds(id, ok, observed, of_reduced_link(seen, best), subject=seen.subject)
