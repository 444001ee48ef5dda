"""The plugin of node-problem-detector, under the shells and tools that its image may have."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from preflight.outcome import Outcome
from preflight.report.json_report import render
from tests.ci.kustomize import KUBERNETES
from tests.report.reports import report, settings

SCRIPT = KUBERNETES / "node-problem-detector" / "last-result.sh"
TOOLS = ("stat", "date", "sed", "tail", "tr", "cut")
OK, PROBLEM, UNKNOWN = 0, 1, 2
HOUR = 3600

BY_NODE = settings(exit_on="node")
PASS = report(settings=BY_NODE)
WARN = report(settings=BY_NODE, outcome=Outcome.WARN)
FAIL = report(
    settings=BY_NODE, outcome=Outcome.FAIL, exit_code=1,
    reason='gpus: "GPU 3" has fallen off the bus',
)  # fmt: skip
UNDECIDED = report(
    settings=BY_NODE, outcome=Outcome.ERROR, exit_code=3, reason="dataloader: too close to call"
)


class Node:
    """A node with a report, and the plugin on it."""

    def __init__(self, folder: Path, shell: tuple[str, ...], path: str) -> None:
        self.report, self._shell, self._path = folder / "preflight.json", shell, path

    def holds(self, content: bytes, age_s: float = 60) -> None:
        self.report.write_bytes(content)
        then = time.time() - age_s
        os.utime(self.report, (then, then))

    def says(self, question: str) -> tuple[int, str]:
        done = subprocess.run(
            [*self._shell, str(SCRIPT), question, str(self.report)],
            capture_output=True, env={"PATH": self._path}, timeout=20,
        )  # fmt: skip
        assert not done.stderr, done.stderr
        text = done.stdout.decode("ascii")
        assert text.endswith("\n") and text.count("\n") == 1 and len(text) <= 81
        return done.returncode, text.strip()

    def conditions(self) -> tuple[int, int, str]:
        """Exit codes of both questions, and what was said to the first."""
        failed, said = self.says("failed")
        return failed, self.says("no-result")[0], said


@pytest.fixture(params=["dash", "busybox"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} here")
    if request.param != "busybox":
        return Node(tmp_path, (request.param,), os.environ["PATH"])
    applets = tmp_path / "bin"
    applets.mkdir()
    for name in ("busybox", *TOOLS):
        (applets / name).symlink_to(str(shutil.which("busybox")))
    return Node(tmp_path, (str(applets / "busybox"), "sh"), str(applets))


def test_a_pass(node: Node):
    node.holds(render(PASS), age_s=600)
    assert node.conditions() == (OK, OK, "passed 10 min ago")
    node.holds(render(WARN))
    assert node.conditions()[:2] == (OK, OK)


def test_a_fail_says_why(node: Node):
    node.holds(render(FAIL))
    assert node.conditions() == (PROBLEM, OK, 'gpus: "GPU 3" has fallen off the bus')


def test_a_long_reason_in_any_language_stays_one_short_line(node: Node):
    node.holds(render(FAIL.model_copy(update={"reason": "größer\n\t" + "x" * 500})))
    failed, _, said = node.conditions()
    assert failed == PROBLEM and said.startswith("gr") and len(said) == 80


@pytest.mark.parametrize("last", [PASS, FAIL], ids=["pass", "fail"])
def test_a_verdict_older_than_a_day_is_none(node: Node, last):
    node.holds(render(last), age_s=24 * HOUR - 60)
    assert node.conditions()[:2] == ((PROBLEM, OK) if last is FAIL else (OK, OK))
    node.holds(render(last), age_s=25 * HOUR)
    said = "no result: the last is 25 h old; run preflight again"
    assert node.conditions() == (UNKNOWN, PROBLEM, said)


def test_nothing_was_ever_measured(node: Node):
    assert node.conditions()[:2] == (UNKNOWN, PROBLEM)


def test_undecided_is_unknown(node: Node):
    node.holds(render(UNDECIDED))
    said = "no verdict: dataloader: too close to call"
    assert node.conditions() == (UNKNOWN, PROBLEM, said)


@pytest.mark.parametrize("code", [0, 2, 3, 130, 143])
def test_only_a_1_is_a_fail(node: Node, code):
    node.holds(render(FAIL.model_copy(update={"exit_code": code})))
    assert node.conditions()[:2] == (UNKNOWN, PROBLEM)


def test_a_fail_that_may_blame_something_else_is_unknown(node: Node):
    node.holds(render(FAIL.model_copy(update={"settings": settings()})))
    assert node.conditions()[:2] == (UNKNOWN, PROBLEM)


def test_a_run_under_way_leaves_a_closed_node_closed(node: Node):
    going_on = render(UNDECIDED.model_copy(update={"complete": False}))
    node.holds(going_on)
    assert node.conditions() == (UNKNOWN, OK, "preflight is measuring")
    node.holds(going_on, age_s=HOUR)
    assert node.conditions()[:2] == (UNKNOWN, PROBLEM)


def test_a_clock_that_was_set_back_makes_no_report_fresh_for_ever(node: Node):
    node.holds(render(PASS), age_s=-HOUR)
    assert node.conditions()[:2] == (UNKNOWN, PROBLEM)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", render(PASS)[:-2], render(FAIL)[:200], b"\0\xff\x80" * 99, b"{\n}\n", b"[]"],
    ids=["empty", "newline", "no end", "cut", "binary", "no keys", "a list"],
)
def test_a_broken_report_is_unknown(node: Node, content):
    node.holds(content)
    assert node.conditions()[:2] == (UNKNOWN, PROBLEM)


def test_what_cannot_be_read_is_unknown(node: Node):
    node.report.mkdir()
    assert node.conditions()[:2] == (UNKNOWN, PROBLEM)
    assert "cannot be read" in node.conditions()[2] or len(node.conditions()[2]) == 80
