"""Results in, exit code out. The codes are a contract: they never change their meaning.

0 pass, 1 fail, 2 usage, 3 undecided, 128 + signal when interrupted. Precedence: 2; then 130/143;
then 1; then 3; then 0. Code 2 arises before anything is measured, so it is not decided here.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from preflight.outcome import Blame, Outcome

if TYPE_CHECKING:
    from preflight.model import Result

PASS, FAIL, USAGE, UNDECIDED = 0, 1, 2, 3

ExitOn = Literal["any", "node"]


def decide(
    results: Sequence[Result],
    *,
    exit_on: ExitOn = "any",
    report_only: bool = False,
    allow_undecided: bool = False,
    stopped_by: signal.Signals | None = None,
) -> int:
    """The exit code of a run that measured (or tried to)."""
    if stopped_by is not None:
        return interrupted(stopped_by)
    return lowered(_verdict(results, exit_on), report_only, allow_undecided)


def lowered(code: int, report_only: bool, allow_undecided: bool) -> int:
    """1 and 3 as --report-only and --allow-undecided want them."""
    if report_only or (allow_undecided and code == UNDECIDED):
        return PASS
    return code


def interrupted(stopped_by: signal.Signals) -> int:
    """130 for SIGINT; 143 for SIGTERM, and for SIGHUP, which counts as SIGTERM."""
    return 130 if stopped_by is signal.SIGINT else 143


def _verdict(results: Sequence[Result], exit_on: ExitOn) -> int:
    findings = [finding for result in results for finding in result.findings]
    fails = [finding for finding in findings if finding.outcome is Outcome.FAIL]
    if any(exit_on == "any" or finding.blame is Blame.NODE for finding in fails):
        return FAIL
    # Not at the top: --help needs the codes, not pydantic.
    from preflight.model import judged

    undecided = any(finding.outcome is Outcome.ERROR for finding in findings)
    return UNDECIDED if fails or undecided or not judged(results) else PASS
