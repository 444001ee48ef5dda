"""Every exit code through the real command, and which of them wins. Code, JSON and JUnit agree."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.command.running import (
    FAIL_LIMITS,
    FAIL_SHM,
    PASS_HERE,
    SCRIPT,
    Gate,
    assert_one_verdict,
    wait_until,
)

pytestmark = pytest.mark.timeout(90)

# What a check comes to -> how the command is made to come to it: (options, stand-in).
LIMITS = {
    "pass": ("--set=limits.min_memory_headroom_gib=0", ""),
    "fail": (FAIL_LIMITS, ""),
    "node": (FAIL_LIMITS, "node:limits"),  # no check that ships blames the node yet
    "error": ("", "raise:limits"),
    "optional fail": (f"{FAIL_LIMITS} --set=limits.required=false", ""),
    "optional error": ("--set=limits.required=false", "raise:limits"),
}
SHM = {
    "-": ("--skip=shm", ""),
    "pass": ("--set=shm.min_free_gib=0", ""),
    "fail": (FAIL_SHM, ""),
    "error": ("", "raise:shm"),
    "hang": ("", "hang:shm"),
}

# limits, shm, options -> exit code, outcome of the report
MATRIX = [
    ("pass", "pass", "", 0, "pass"),
    ("fail", "-", "", 1, "fail"),
    ("pass", "fail", "", 1, "fail"),
    ("error", "-", "", 3, "error"),
    ("pass", "error", "", 3, "error"),
    ("fail", "error", "", 1, "fail"),
    ("error", "fail", "", 1, "fail"),
    ("node", "error", "", 1, "fail"),
    # not required: both become warnings, and nothing else does
    ("optional fail", "-", "", 0, "warn"),
    ("optional error", "-", "", 3, "warn"),  # nothing else was judged
    ("optional error", "pass", "", 0, "warn"),
    ("optional fail", "fail", "", 1, "fail"),
    ("optional fail", "error", "", 3, "error"),
    ("optional error", "fail", "", 1, "fail"),
    # waived: a fail becomes a warning, an error does not
    ("fail", "-", "--waive limits", 0, "warn"),
    ("fail", "-", "--waive limits.memory_headroom", 0, "warn"),
    ("fail", "-", "--waive limits.nofile", 1, "fail"),
    ("fail", "fail", "--waive limits", 1, "fail"),
    ("fail", "fail", "--waive limits --waive shm", 0, "warn"),
    ("fail", "error", "--waive limits", 3, "error"),
    ("pass", "error", "--waive shm", 3, "error"),
    ("fail", "error", "--waive limits --allow-undecided", 0, "error"),
    # --report-only: 1 and 3 become 0, the report still tells
    ("fail", "-", "--report-only", 0, "fail"),
    ("pass", "error", "--report-only", 0, "error"),
    ("fail", "error", "--report-only", 0, "fail"),
    ("node", "-", "--report-only --exit-on node", 0, "fail"),
    # --allow-undecided: 3 becomes 0, 1 does not
    ("pass", "error", "--allow-undecided", 0, "error"),
    ("fail", "-", "--allow-undecided", 1, "fail"),
    ("fail", "error", "--allow-undecided", 1, "fail"),
    # --exit-on node: a fail that blames something else is undecided
    ("pass", "-", "--exit-on node", 0, "pass"),
    ("node", "-", "--exit-on node", 1, "fail"),
    ("node", "fail", "--exit-on node", 1, "fail"),
    ("node", "error", "--exit-on node --allow-undecided", 1, "fail"),
    ("fail", "-", "--exit-on node", 3, "fail"),
    ("fail", "error", "--exit-on node", 3, "fail"),
    ("pass", "error", "--exit-on node", 3, "error"),
    ("fail", "-", "--exit-on node --allow-undecided", 0, "fail"),
    ("node", "-", "--exit-on node --waive limits", 0, "warn"),
]


def arguments(limits: str, shm: str, options: str) -> list[str]:
    words = f"{LIMITS[limits][0]} {SHM[shm][0]} {options}".split()
    return ["run", "--thresholds=quick", "--set=shm.write=none", *words]


def standin(limits: str, shm: str) -> str:
    return ",".join(filter(None, [LIMITS[limits][1], SHM[shm][1]]))


@pytest.mark.parametrize(
    ("limits", "shm", "options", "code", "outcome"),
    MATRIX,
    ids=[f"{limits}+{shm} {options}".rstrip() for limits, shm, options, *_ in MATRIX],
)
def test_the_matrix(
    gate: Gate, limits: str, shm: str, options: str, code: int, outcome: str
) -> None:
    ran = gate.run(*arguments(limits, shm, options), standin=standin(limits, shm))
    assert_one_verdict(ran, code)
    assert ran.report["outcome"] == (PASS_HERE if outcome == "pass" else outcome)
    recorded = ran.report["settings"]["options"]
    assert recorded["report_only"] == ("--report-only" in options)
    assert recorded["allow_undecided"] == ("--allow-undecided" in options)
    for option in ("--report-only", "--allow-undecided", "--exit-on node"):
        assert (option in ran.stdout) == (option in options)


STOPPED = [
    ("fail", "", signal.SIGTERM, 143),
    ("fail", "--report-only --allow-undecided", signal.SIGTERM, 143),
    ("node", "--exit-on node", signal.SIGHUP, 143),
    ("error", "--allow-undecided", signal.SIGINT, 130),
    ("pass", "", signal.SIGINT, 130),
]


@pytest.mark.parametrize(("limits", "options", "number", "code"), STOPPED)
def test_a_signal_outranks_whatever_was_found(
    gate: Gate, limits: str, options: str, number: signal.Signals, code: int
) -> None:
    running = gate.start(*arguments(limits, "hang", options), standin=standin(limits, "hang"))
    gate.mark()
    ran = running.send(number).end()
    assert_one_verdict(ran, code)
    assert ran.report["reason"] == f"stopped by {number.name}"


@pytest.mark.parametrize("wrong", ["--no-such-option", "--check=nothing", "--exit-on=never"])
@pytest.mark.parametrize("options", ["", "--report-only --allow-undecided"])
def test_wrong_usage_outranks_every_option(gate: Gate, wrong: str, options: str) -> None:
    ran = gate.run(*arguments("fail", "pass", options), wrong)
    assert_one_verdict(ran, 2)
    assert ran.report["results"] == []


def test_a_run_in_which_everything_was_waived_is_undecided(gate: Gate) -> None:
    (gate.folder / "data").mkdir()
    options = ("--data=data", "--check=dataloader", "--skip=shm")
    assert_one_verdict(gate.run("run", "--thresholds=cpu", *options), 1)
    ran = gate.run("run", "--thresholds=cpu", *options, "--waive=dataloader")
    assert_one_verdict(ran, 3)
    assert "nothing was judged" in ran.report["reason"]


def test_required_false_in_a_site_file(gate: Gate) -> None:
    site = gate.folder / "site.yaml"
    site.write_text(
        "extends: quick\nlimits: {min_memory_headroom_gib: 1000000, required: false}\n"
        "shm: {min_free_gib: 0}\n"
    )
    ran = gate.run("run", f"--thresholds={site}")
    assert_one_verdict(ran, 0)
    finding = ran.finding("limits.memory_headroom")
    assert (finding["outcome"], finding["would_be"], finding["waived"]) == ("warn", "fail", False)


def test_a_deadline_that_is_too_short_is_undecided(gate: Gate) -> None:
    ran = gate.run(
        *arguments("pass", "hang", ""), "--set=run.deadline_s=1", standin=standin("pass", "hang")
    )
    assert_one_verdict(ran, 3)
    assert ran.result("shm")["outcome"] == "error"


def test_the_console_script_gives_the_same_codes(gate: Gate) -> None:
    if not Path(SCRIPT[0]).exists():
        pytest.skip("the console script is not installed")
    for limits, code in (("pass", 0), ("fail", 1), ("error", 3)):
        words = arguments(limits, "-", "")
        assert_one_verdict(gate.run(*words, command=SCRIPT, standin=standin(limits, "-")), code)
    assert_one_verdict(gate.run("run", "--nonsense", command=SCRIPT), 2)


def test_run_is_what_no_command_means(gate: Gate) -> None:
    ran = gate.run("--thresholds=quick", "--check=limits", FAIL_LIMITS)
    assert_one_verdict(ran, 1)
    wait_until(gate.processes, lambda pids: not pids)
