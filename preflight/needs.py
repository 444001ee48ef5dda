"""What a check that did not pass means for those that need it. Pure.

A node-level miss keeps the whole check from running. A miss on one GPU keeps that GPU from being
measured further, and nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from preflight.gpu_facts import GPU_SUBJECT, CudaDevice
from preflight.model import Finding, Result
from preflight.outcome import Outcome
from preflight.plan import Planned, PlannedUnit


@dataclass(frozen=True)
class Blocked:
    """A needed check did not pass: in general, or on some GPUs alone."""

    by: str
    """The check that stands in the way of the first unit that is left out."""
    units: tuple[PlannedUnit, ...]
    """What can be measured all the same."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """By subject: the check that did not pass on it."""

    @property
    def reason(self) -> str:
        """In words."""
        return _reason(self.by)


def blocked(planned: Planned, done: Mapping[str, Result]) -> Blocked | None:
    """What needed checks that did not pass leave of this one; None: all of it.

    A GPU that failed keeps nobody from looking at the others.
    """
    skipped: dict[str, str] = {}
    for need in planned.check.needs:
        bad = _bad_subjects(done.get(need))
        if None in bad:
            return Blocked(need, ())
        for unit in planned.units:
            if unit.subject is not None and any(_covers(name, unit.subject) for name in bad):
                skipped.setdefault(unit.subject, need)
    if not skipped:
        return None
    units = tuple(unit for unit in planned.units if unit.subject not in skipped)
    return Blocked(next(iter(skipped.values())), units, skipped)


def on_sound_devices(
    units: Sequence[PlannedUnit], devices: Sequence[CudaDevice], done: Mapping[str, Result]
) -> tuple[PlannedUnit, ...]:
    """Ranks take no device that a check has failed on: pinning memory there would hang too."""
    bad = {name for result in done.values() for name in _bad_subjects(result) if name is not None}
    sound = [d for d in devices if not any(_covers(name, d.subject) for name in bad)]
    ids = {device.cuda_id for device in sound}
    other = sound[0].cuda_id if sound else ""
    return tuple(
        unit
        if unit.cuda_id is None or unit.cuda_id in ids or _is_gpu(unit.subject)
        else replace(unit, cuda_id=other)
        for unit in units
    )


def _bad_subjects(result: Result | None) -> set[str | None]:
    """GPUs that the check did not pass on; None among them: the miss is not of one GPU."""
    if result is None or result.outcome not in (Outcome.FAIL, Outcome.ERROR):
        return set()
    return {
        finding.subject if _is_gpu(finding.subject) else None
        for finding in result.findings
        if finding.outcome in (Outcome.FAIL, Outcome.ERROR)
    }


def _is_gpu(subject: str | None) -> bool:
    return subject is not None and subject.startswith(GPU_SUBJECT)


def _covers(bad: str | None, subject: str) -> bool:
    """A whole GPU stands for its MIG slices too."""
    return subject == bad or subject.startswith(f"{bad} ")


def _reason(need: str) -> str:
    return f"needs {need}, which did not pass"


def with_skipped(result: Result, blocked: Blocked) -> Result:
    """The result of the units that ran, with a finding for each that did not."""
    skips = tuple(
        Finding(
            id=f"{result.check}.applies", outcome=Outcome.SKIP, subject=subject, cause=_reason(need)
        )
        for subject, need in blocked.skipped.items()
    )
    return result.model_copy(update={"findings": (*result.findings, *skips)})
