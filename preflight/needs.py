"""What a check that did not pass means for those that need it. Pure.

A node-level miss keeps the whole check from running. A miss on one GPU keeps that GPU from being
measured further, and nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from preflight.gpu_facts import GPU_SUBJECT
from preflight.model import Finding, Result
from preflight.outcome import Outcome
from preflight.plan import Planned, PlannedUnit


@dataclass(frozen=True)
class Blocked:
    """A needed check did not pass: in general, or on some GPUs alone."""

    by: str
    reason: str
    units: tuple[PlannedUnit, ...]
    """What can be measured all the same."""
    skipped: tuple[str, ...] = ()


def blocked(planned: Planned, done: Mapping[str, Result]) -> Blocked | None:
    """What a needed check that did not pass leaves of this one; None: all of it.

    A GPU that failed keeps nobody from looking at the others.
    """
    units, skipped, by = planned.units, [], ""
    for need in planned.check.needs:
        if need not in done or done[need].outcome not in (Outcome.FAIL, Outcome.ERROR):
            continue
        reason = f"needs {need}, which did not pass"
        bad = [f for f in done[need].findings if f.outcome in (Outcome.FAIL, Outcome.ERROR)]
        if not all(_is_gpu(finding.subject) for finding in bad):
            return Blocked(need, reason, ())
        subjects = {finding.subject for finding in bad}
        skipped += [unit.subject for unit in units if unit.subject in subjects]
        units = tuple(unit for unit in units if unit.subject not in subjects)
        if not units:
            return Blocked(need, reason, ())
        by = need
    names = tuple(name for name in skipped if name)
    return Blocked(by, f"needs {by}, which did not pass", units, names) if by else None


def _is_gpu(subject: str | None) -> bool:
    return subject is not None and subject.startswith(GPU_SUBJECT)


def with_skipped(result: Result, by: Blocked) -> Result:
    """The result of the units that ran, with a finding for each that did not."""
    skips = tuple(
        Finding(
            id=f"{result.check}.applies", outcome=Outcome.SKIP, subject=subject,
            cause=by.reason,
        )
        for subject in by.skipped
    )  # fmt: skip
    return result.model_copy(update={"findings": (*result.findings, *skips)})
