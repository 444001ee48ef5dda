"""The unit that gates a node at boot: systemd takes it, its command runs, only a 1 holds back."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.command.running import FAIL_LIMITS, Gate

UNIT = Path(__file__).parents[2] / "ci" / "systemd" / "preflight.service"
SETTINGS = dict(
    line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"[A-Z]\w+=", line)
)


def test_systemd_finds_nothing_to_say_about_it(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    program = SETTINGS["ExecStart"].split()[0]
    unit = tmp_path / UNIT.name  # it looks for the program, which is not there in a checkout
    unit.write_text(UNIT.read_text().replace(program, shutil.which("true") or "/bin/true"))
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_runs_once_before_the_daemon_that_needs_it() -> None:
    assert SETTINGS["Type"] == "oneshot" and SETTINGS["RemainAfterExit"] == "yes"
    assert SETTINGS["Before"] == SETTINGS["RequiredBy"] == "slurmd.service"
    sections = re.findall(r"^\[(\w+)\]$", UNIT.read_text(), re.MULTILINE)
    assert sections == ["Unit", "Service", "Install"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("more", "standin", "code"),
    [
        ("--set=limits.min_memory_headroom_gib=0", "", 0),
        (FAIL_LIMITS, "node:limits", 1),
        ("--no-such-option", "", 2),
        (FAIL_LIMITS, "", 3),  # a setup's fault
        ("", "raise:limits", 3),
    ],
)
def test_only_a_broken_node_holds_the_daemon_back(
    gate: Gate, more: str, standin: str, code: int
) -> None:
    words = shlex.split(SETTINGS["ExecStart"])[1:]
    ran = gate.run(*words, "--check=limits", *filter(None, [more]), standin=standin)
    assert ran.code == code
    let_through = ["0", *SETTINGS["SuccessExitStatus"].split()]
    assert (str(code) in let_through) == (code != 1)


def test_it_waits_longer_than_the_gate_may_take() -> None:
    deadline = re.search(
        r"deadline_s: (\d+)", (UNIT.parents[2] / "thresholds/quick.yaml").read_text()
    )
    assert deadline and int(SETTINGS["TimeoutStartSec"]) > int(deadline[1]) + 60
