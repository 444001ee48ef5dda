"""The launchers' lines of README, executed: one gate a node, and all ranks as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command.running import FAIL_LIMITS, Gate, wait_until

pytestmark = pytest.mark.timeout(120)

README = Path(__file__).parents[2] / "README.md"
TITLE = "## In front of a training command\n"
PASSING = "limits.min_memory_headroom_gib=0"
FAILING = FAIL_LIMITS.removeprefix("--set=")

# Starts tasks as a real srun was seen to (22.05), on one node.
SRUN = r"""#!/bin/bash
tasks=${1#--ntasks-per-node=}; shift
for ((task = 0; task < tasks; task++)); do
  SLURM_JOB_ID=$PPID SLURM_STEP_ID=0 SLURM_NODEID=0 SLURM_LOCALID=$task \
    SLURM_STEP_TASKS_PER_NODE="$tasks(x2)" "$@" & pids+=($!)
done
for pid in ${pids[@]}; do wait $pid || code=$?; done; exit ${code:-0}
"""
TRAIN = """
import os
rank = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID")
os.write(1, f"training {rank}\\n".encode())  # whole, whoever writes beside it
"""


def lines_of_readme(program: str) -> list[str]:
    section = README.read_text().partition(TITLE)[2].partition("\n## ")[0]
    return re.findall(rf"^    ({program} .*)$", section, re.MULTILINE)


def run_line(gate: Gate, program: str, setting: str) -> subprocess.CompletedProcess[str]:
    """README's line, with names on PATH that mean this checkout's Python and the stand-in srun."""
    (line,) = lines_of_readme(program)
    programs = {
        "torchrun": f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n',
        "preflight": f'#!/bin/sh\nexec {sys.executable} -m preflight "$@"\n',
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        "srun": SRUN,
    }
    (gate.folder / "bin").mkdir()
    for name, text in programs.items():
        (gate.folder / "bin" / name).write_text(text)
        (gate.folder / "bin" / name).chmod(0o755)
    (gate.folder / "train.py").write_text(TRAIN)
    environ = gate.environment(
        PATH=f"{gate.folder}/bin:/usr/bin:/bin", PREFLIGHT_CHECK="limits", PREFLIGHT_SET=setting,
        PREFLIGHT_THRESHOLDS="quick", LOCAL_RANK=None, SLURM_LOCALID=None,
    )  # fmt: skip
    return subprocess.run(
        line.replace("/data/imagenet/train", str(gate.folder)), shell=True, cwd=gate.folder,
        env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def trained(done: subprocess.CompletedProcess[str]) -> list[str]:
    return sorted(re.findall(r"^training (\w+)$", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("program", ["torchrun", "srun"])
def test_a_launcher_starts_every_rank_after_one_pass(gate: Gate, program: str) -> None:
    done = run_line(gate, program, PASSING)
    assert done.returncode == 0, done.stderr
    assert trained(done) == ["0", "1", "2", "3"]
    assert len(re.findall("^PASS ", done.stdout, re.MULTILINE)) == 1
    wait_until(gate.processes, lambda pids: not pids)


@pytest.mark.parametrize("program", ["torchrun", "srun"])
def test_a_launcher_starts_no_rank_after_one_fail(gate: Gate, program: str) -> None:
    done = run_line(gate, program, FAILING)
    # torchrun exits 1 whatever a rank's code is, and says that in its table.
    assert done.returncode == (1 if program == "torchrun" else 91)
    assert trained(done) == []
    assert len(re.findall("^FAIL ", done.stdout, re.MULTILINE)) == 1
    if program == "torchrun":
        assert len(re.findall(r"exitcode +: 91", done.stderr)) == 4
    wait_until(gate.processes, lambda pids: not pids)


@pytest.mark.parametrize(("setting", "code"), [(PASSING, 0), (FAILING, 91)])
def test_the_line_without_a_launcher(gate: Gate, setting: str, code: int) -> None:
    done = run_line(gate, "preflight", setting)
    assert done.returncode == code, done.stderr
    assert ("training None" in done.stdout) == (code == 0)
