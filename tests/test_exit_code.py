"""The precedence matrix of exit codes, pure; tests/command holds it through the real command."""

from __future__ import annotations

import signal

import pytest

from preflight import exit_code
from preflight.model import Finding, Result
from preflight.outcome import Blame, Outcome


def result(outcome: Outcome, blame: Blame | None = None, *, waived: bool = False) -> Result:
    finding = Finding(id="shm.need", outcome=outcome, blame=blame, waived=waived)
    return Result(check="shm", outcome=outcome, required=True, duration_s=0.1, findings=(finding,))


PASS, WARN, SKIP = result(Outcome.PASS), result(Outcome.WARN), result(Outcome.SKIP)
ERROR = result(Outcome.ERROR, Blame.UNKNOWN)
FAIL_NODE, FAIL_SETUP = result(Outcome.FAIL, Blame.NODE), result(Outcome.FAIL, Blame.SETUP)
NOT_REQUIRED = Result(
    check="shm", outcome=Outcome.WARN, required=False, duration_s=0.1,
    findings=(Finding(id="shm.completed", outcome=Outcome.WARN, would_be=Outcome.ERROR),),
)  # fmt: skip
WAIVED = result(Outcome.WARN, Blame.SETUP, waived=True)


@pytest.mark.parametrize(
    ("results", "any_", "node"),
    [
        ([PASS], 0, 0),
        ([PASS, WARN], 0, 0),
        ([PASS, SKIP], 0, 0),
        ([FAIL_SETUP, PASS], 1, 3),
        ([FAIL_NODE, PASS], 1, 1),
        ([FAIL_SETUP, FAIL_NODE], 1, 1),
        ([FAIL_SETUP, ERROR], 1, 3),
        ([ERROR, PASS], 3, 3),
        ([WAIVED, PASS], 0, 0),
        ([WAIVED, ERROR], 3, 3),
        ([SKIP], 3, 3),
        ([WAIVED], 3, 3),
        ([NOT_REQUIRED], 3, 3),
        ([NOT_REQUIRED, PASS], 0, 0),
        ([WAIVED, SKIP], 3, 3),
        ([], 3, 3),
    ],
)
def test_verdict(results: list[Result], any_: int, node: int) -> None:
    assert exit_code.decide(results) == any_
    assert exit_code.decide(results, exit_on="node") == node


def test_report_only_turns_1_and_3_into_0() -> None:
    assert exit_code.decide([FAIL_NODE], report_only=True) == 0
    assert exit_code.decide([ERROR], report_only=True) == 0


def test_allow_undecided_turns_only_3_into_0() -> None:
    assert exit_code.decide([FAIL_NODE], allow_undecided=True) == 1
    assert exit_code.decide([ERROR], allow_undecided=True) == 0
    assert exit_code.decide([FAIL_SETUP], exit_on="node", allow_undecided=True) == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_a_signal_outranks_every_verdict(number: signal.Signals, code: int) -> None:
    for results in ([PASS], [FAIL_NODE], [ERROR]):
        assert exit_code.decide(results, stopped_by=number) == code
        assert exit_code.decide(results, stopped_by=number, report_only=True) == code
