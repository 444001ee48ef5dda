"""A closed, full or cut off standard stream costs words, never the verdict's code or a report."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.command.running import FAIL_LIMITS, MODULE, SCRIPT, Gate, Ran, assert_one_verdict

pytestmark = pytest.mark.timeout(60)

VERDICTS = {"pass": 0, "fail": 1, "undecided": 3}
_OPTIONS = {
    "pass": ("--set=limits.min_memory_headroom_gib=0", ""),
    "fail": (FAIL_LIMITS, ""),
    "undecided": ("", "raise:limits"),
}


def run(gate: Gate, verdict: str, redirection: str, *more: str, command: object = MODULE) -> Ran:
    """Run through a shell, whose own exit code is the command's."""
    option, standin = _OPTIONS[verdict]
    words = [*command, "run", "--thresholds=quick", "--check=limits", option, *more]  # type: ignore[misc]
    line = f"{shlex.join([*filter(None, words), f'--report-dir={gate.reports}'])} {redirection}"
    # PIPESTATUS: the command's code even where head is happy.
    return gate.run(
        f"set -o pipefail; {line}; exit ${{PIPESTATUS[0]}}",
        command=("bash", "-c"), reports=False, standin=standin,
    )  # fmt: skip


REDIRECTIONS = (
    "| head -1", "| true", ">/dev/full", ">&-", "2>&-", "2>/dev/full", "<&-", ">&- 2>&- <&-",
    ">/dev/full 2>/dev/full",
)  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "redirection"),
    [
        *((verdict, redirection) for verdict in ("pass", "fail") for redirection in REDIRECTIONS),
        ("undecided", "| head -1"),
        ("undecided", ">/dev/full 2>/dev/full"),
    ],
)
def test_the_code_and_the_reports_are_the_verdicts(
    gate: Gate, verdict: str, redirection: str
) -> None:
    ran = run(gate, verdict, redirection)
    assert_one_verdict(ran, VERDICTS[verdict])
    if redirection == "| head -1":
        (line,) = ran.stdout.splitlines()
        assert line.startswith({"pass": "PASS", "fail": "FAIL"}.get(verdict, "UNDECIDED"))


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_what_cannot_be_printed_is_said_once_on_standard_error(
    gate: Gate, redirection: str
) -> None:
    ran = run(gate, "fail", redirection, "--format=json")
    assert_one_verdict(ran, 1)
    if redirection == ">/dev/full":
        (line,) = ran.stderr.splitlines()
        assert "No space left on device" in line and "FAIL node" in line


def test_the_console_script_survives_too(gate: Gate) -> None:
    if not Path(SCRIPT[0]).exists():
        pytest.skip("the console script is not installed")
    for redirection in (">/dev/full", "| true"):
        assert_one_verdict(run(gate, "pass", redirection, command=SCRIPT), 0)


PAGES = (("--help",), ("run", "--help"), ("--version",), ("checks",), ("thresholds", "list"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_cannot_be_printed_is_no_verdict(gate: Gate, page: tuple[str, ...]) -> None:
    line = f"{shlex.join([*MODULE, *page])} >/dev/full"
    ran = gate.run(line, command=("bash", "-c"), reports=False)
    assert ran.code == 3
    assert len(ran.stderr.splitlines()) == 1 and "standard output is lost" in ran.stderr
