"""The shell in each CI template, run as its engine runs it against a stand-in `preflight`.

Proven here: the exit codes, the messages, the rule of the missing report, the limit in time, and
that text from outside stays text. Not proven: anything that the engines do around the script.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.ci.templates import JENKINSFILE, Ended, Node

pytestmark = pytest.mark.timeout(60)

ENGINES = ["github", "github image", "gitlab bash", "gitlab sh", "jenkins"]
GITHUB = ["github", "github image"]

# what preflight exits with -> (with a report, without), the outcome that GitHub is told of each
CODES: dict[int, tuple[int, int, str, str]] = {
    0: (0, 4, "pass", "no-report"),
    1: (1, 4, "fail", "no-report"),
    2: (2, 2, "setup", "setup"),
    3: (3, 4, "undecided", "no-report"),
    126: (126, 126, "not-started", "not-started"),
    137: (137, 137, "stopped", "stopped"),
    143: (143, 143, "stopped", "stopped"),
}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def ran(node: Node, engine: str, code: int | str, report: bool, **more: str) -> Ended:
    return node.run(engine, node.environment(code, report) | more)


@pytest.mark.parametrize("report", [True, False], ids=["report", "no report"])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("engine", ENGINES)
def test_exit_code(node: Node, engine: str, code: int, report: bool) -> None:
    ended = ran(node, engine, code, report)
    with_report, without, outcome, outcome_without = CODES[code]
    assert ended.code == (with_report if report else without), ended.output
    if engine in GITHUB:
        assert ended.outputs["outcome"] == (outcome if report else outcome_without)
        level = "notice" if ended.code == 0 else "error"
        assert ended.said.startswith(f"::{level} title=preflight::")
    assert ended.noted("arguments")[0] == "run"


@pytest.mark.parametrize("engine", ["github", "gitlab sh"])
def test_each_code_has_its_own_words(tmp_path: Path, engine: str) -> None:
    said = {}
    for code, report in [(0, True), (1, True), (2, True), (3, True), (0, False), (127, True)]:
        node = Node(tmp_path / f"{code}{report}")
        said[code, report] = ran(node, engine, code, report).said
    assert len(set(said.values())) == 6
    assert "cannot keep its GPU fed" in said[1, True]
    assert "et up wrong" in said[2, True]
    assert "ndecided" in said[3, True]
    assert "eport was left" in said[0, False]


@pytest.mark.parametrize("engine", ENGINES)
def test_report_of_an_earlier_run_does_not_count(node: Node, engine: str) -> None:
    node.reports.mkdir()
    (node.reports / "preflight.xml").write_text("<testsuites/>")
    assert ran(node, engine, 0, False).code == 4
    assert not (node.reports / "preflight.xml").exists()


@pytest.mark.parametrize("engine", ENGINES)
def test_no_room_for_reports_is_a_wrong_setup(node: Node, engine: str) -> None:
    node.reports.write_text("a file")
    ended = ran(node, engine, 0, True)
    assert ended.code == 2
    assert not ended.noted("arguments"), "it was measured all the same"


@pytest.mark.parametrize("engine", ENGINES)
def test_hang_is_ended_from_outside(node: Node, engine: str) -> None:
    environment = node.environment("hang", report=True, patience="0.3")
    ended = node.run(engine, environment)
    assert ended.code == 137
    run, *_ = ended.noted("timeouts")
    assert run == "-k 30 300"
    if engine == "github image":
        (name,) = [line for line in ended.noted("run") if line.startswith("preflight-")]
        assert ended.noted("docker")[-1] == f"rm --force {name}"


@pytest.mark.parametrize("engine", ["github", "gitlab bash", "gitlab sh", "jenkins"])
def test_no_preflight_on_path(tmp_path: Path, engine: str) -> None:
    node = Node(tmp_path / "node")
    (node.folder / "bin" / "preflight").unlink()
    environment = node.environment(0, True)
    environment["PATH"] = f"{node.folder / 'bin'}:/usr/bin:/bin"
    ended = node.run(engine, environment)
    assert ended.code == 127
    assert ended.outputs.get("outcome", "not-started") == "not-started"


@pytest.mark.parametrize("engine", ENGINES)
def test_text_from_outside_stays_text(node: Node, engine: str) -> None:
    text = "$(touch pwned); `touch pwned` \"'; touch pwned #*"
    ended = ran(node, engine, 0, True, PREFLIGHT_WORKLOAD=text, PREFLIGHT_DATA=f"/{text}")
    assert ended.code == 0, ended.output
    assert f"PREFLIGHT_WORKLOAD={text}" in ended.noted("environment")
    assert not list(node.folder.rglob("pwned"))
    if engine == "github image":
        passed = ended.noted("run")
        assert f"type=bind,source=/{text},target=/{text},readonly" in passed
        assert passed[passed.index("PREFLIGHT_WORKLOAD") - 1] == "--env"


@pytest.mark.parametrize("engine", GITHUB)
def test_gate_cannot_give_the_runner_commands(node: Node, engine: str) -> None:
    lines = ran(node, engine, 1, True).output.splitlines()
    (start,) = [i for i, line in enumerate(lines) if line.startswith("::stop-commands::")]
    end = lines.index(f"::{lines[start].removeprefix('::stop-commands::')}::")
    assert start < lines.index("::error::text from the machine") < end < len(lines) - 1


@pytest.mark.parametrize("engine", GITHUB)
@pytest.mark.parametrize(("report", "code"), [(True, 0), (False, 4)])
def test_undecided_may_warn_but_not_without_a_report(
    node: Node, engine: str, report: bool, code: int
) -> None:
    ended = ran(node, engine, 3, report, GATE_UNDECIDED="warn")
    assert ended.code == code
    if report:
        assert ended.outputs["outcome"] == "undecided"
        assert ended.said.startswith("::warning ")


def test_artifact_is_named_after_the_runner_and_only_this_run(tmp_path: Path) -> None:
    names = {ran(Node(tmp_path / which), "github", 0, True).outputs["artifact"] for which in "ab"}
    assert len(names) == 2
    assert all(name.startswith("preflight-gpu_1_2-") for name in names)


def test_container_is_bounded_and_reads_only(node: Node) -> None:
    ended = ran(node, "github image", 0, True)
    passed = " ".join(ended.noted("run"))
    for flag in (
        "--rm", "--init", "--gpus all", "--shm-size 8g", "--network none", "--read-only",
        "--tmpfs /tmp", "--cap-drop ALL", "--security-opt no-new-privileges", "--user ",
        f"--mount type=bind,source={node.job},target={node.job},readonly",
        f"--mount type=bind,source={node.reports},target={node.reports} ",
    ):  # fmt: skip
        assert flag in passed
    assert passed.endswith(
        f"--entrypoint preflight registry.example.com/image:1 run --report-dir={node.reports}"
    )


@pytest.mark.parametrize("fault", ["absent", "no-gpu"])
def test_container_that_does_not_start(node: Node, fault: str) -> None:
    ended = ran(node, "github image", 0, True, STANDIN_DOCKER=fault)
    assert (ended.code, ended.outputs["outcome"]) == (125, "not-started")


REAL = Path(sys.executable).with_name("preflight")


@pytest.mark.parametrize(
    ("engine", "code", "settings"),
    [
        ("github", 0, {"PREFLIGHT_SET": "limits.min_memory_headroom_gib=0"}),
        ("gitlab sh", 1, {"PREFLIGHT_SET": "limits.min_memory_headroom_gib=1e6"}),
        ("jenkins", 2, {"PREFLIGHT_WORKLOAD": "none such"}),
    ],
)
def test_real_command(tmp_path: Path, engine: str, code: int, settings: dict[str, str]) -> None:
    call = f'#!/bin/sh\nexec {REAL} "$@"\n'
    node = Node(tmp_path / "node", {"preflight": call})
    environment = node.environment(0, True) | {
        "PREFLIGHT_THRESHOLDS": "cpu", "PREFLIGHT_CHECK": "limits", "PREFLIGHT_DATA": "",
    }  # fmt: skip
    ended = node.run(engine, environment | settings)
    assert ended.code == code, ended.output
    assert (node.reports / "preflight.xml").exists()


def test_jenkins_script_is_what_groovy_passes_on() -> None:
    assert "'''" in JENKINSFILE.read_text()
    assert '"""' not in JENKINSFILE.read_text(), "Groovy would put values into the shell"
