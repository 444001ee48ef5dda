"""Value and limit in, Finding out. Pure: no clock, no machine.

A check's `judge` says what a miss means (cause, remedy, blame); these functions only compare, so
that "at least" is spelt the same way in every check and every report.
"""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model import Finding, Scalar
from preflight.outcome import Blame, Outcome

OUTCOME_OF = {
    "reached": Outcome.PASS,
    "missed": Outcome.FAIL,
    "close": Outcome.WARN,
    "undecided": Outcome.ERROR,
}
"""Of what a series of blocks came to (`preflight.measure.stopping.Verdict`)."""


@dataclass(frozen=True)
class Miss:
    """What to say when the limit is missed."""

    cause: str
    remedy: str
    blame: Blame = Blame.SETUP
    outcome: Outcome = Outcome.FAIL
    cause_id: str | None = None
    """The row of a table of causes, where it comes from one."""


def at_least(
    id: str,
    observed: float,
    limit: float,
    unit: str,
    miss: Miss,
    *,
    subject: str | None = None,
    source: str | None = None,
) -> Finding:
    """Pass when observed >= limit."""
    finding = Finding(
        id=id, outcome=Outcome.PASS, subject=subject, observed=observed,
        comparison="at_least", limit=limit, unit=unit, source=source,
    )  # fmt: skip
    return finding if observed >= limit else missed(finding, miss)


def at_most(
    id: str,
    observed: float,
    limit: float,
    unit: str,
    miss: Miss,
    *,
    subject: str | None = None,
    source: str | None = None,
) -> Finding:
    """Pass when observed <= limit."""
    finding = Finding(
        id=id, outcome=Outcome.PASS, subject=subject, observed=observed,
        comparison="at_most", limit=limit, unit=unit, source=source,
    )  # fmt: skip
    return finding if observed <= limit else missed(finding, miss)


def holds(
    id: str,
    ok: bool,
    observed: Scalar,
    miss: Miss,
    unit: str | None = None,
    subject: str | None = None,
) -> Finding:
    """Pass when a yes-or-no statement about the machine is true."""
    finding = Finding(id=id, outcome=Outcome.PASS, subject=subject, observed=observed, unit=unit)
    return finding if ok else missed(finding, miss)


def missed(finding: Finding, miss: Miss) -> Finding:
    """The finding with what its miss means filled in."""
    return finding.model_copy(
        update={
            "outcome": miss.outcome,
            "cause": miss.cause,
            "cause_id": miss.cause_id,
            "remedy": miss.remedy,
            "blame": miss.blame,
        }
    )
