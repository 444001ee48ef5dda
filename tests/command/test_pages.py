"""The commands that only look, and what goes to a terminal. No torch, numpy or NVML is loaded."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.command.running import FAIL_LIMITS, MODULE, Gate, assert_one_verdict, kill
from tests.report.reading_junit import read

pytestmark = pytest.mark.timeout(60)

HEAVY = "forbid:torch,forbid:numpy,forbid:pynvml,forbid:PIL,log"
QUICK = ("run", "--thresholds=quick", "--set=limits.min_memory_headroom_gib=0")
ANSI = re.compile(r"\x1b")

PAGES = {
    ("--version",): "preflight 0.",
    ("--help",): "thresholds",
    ("run", "--help"): "PREFLIGHT_REPORT_DIR",
    ("checks",): "dataloader",
    ("checks", "--thresholds=quick"): "limits",
    ("explain", "shm"): "shm.need",
    ("explain", "dataloader", "--workload=resnet50"): "MLPerf Storage",
    ("explain", "dataloader"): "  remote_saturated     they wait for a server, and more workers",
    ("info",): "cpu.effective",
    ("info", "--format=json"): '"effective"',
    ("thresholds", "list"): "h100-sxm",
    ("thresholds", "show"): "kind: base",
    ("thresholds", "show", "quick"): "extends: default",
    ("thresholds", "show", "resnet50"): "kind: workload",
    ("thresholds", "show", "cpu", "--effective"): "cpu.yaml:",
    ("thresholds", "validate", "site.yaml"): "site.yaml: ok",
    ("thresholds", "schema"): "$schema",
}


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_a_page(gate: Gate, page: tuple[str, ...]) -> None:
    (gate.folder / "site.yaml").write_text("shm: {min_free_gib: 1}\n")
    ran = gate.run(*page, standin=HEAVY, reports=False)
    assert ran.code == 0, ran.stderr
    assert PAGES[page] in ran.stdout and ran.stderr == ""
    assert not ANSI.search(ran.stdout)
    # No process but itself, and the one that asks NVML for what `info` tells.
    started = (gate.folder / "mark.log").read_text().splitlines()
    assert len(started) == (2 if page[0] == "info" else 1)


def test_a_gate_without_a_loader_loads_nothing_heavy_either(gate: Gate) -> None:
    assert_one_verdict(gate.run(*QUICK, standin=HEAVY), 0)


def test_every_option_of_run_has_its_variable(gate: Gate) -> None:
    text = gate.run("run", "--help", reports=False, env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"--([a-z-]+)", text)) - {"help", "set"}
    variables = {
        name.lower().replace("_", "-") for name in re.findall(r"PREFLIGHT_([A-Z_]+)", text)
    }
    assert options - variables == set()


def test_the_schema_takes_every_shipped_file_and_refuses_a_misspelt_key(gate: Gate) -> None:
    schema = json.loads(gate.run("thresholds", "schema", reports=False).stdout)
    shipped = sorted((Path(__file__).parents[2] / "thresholds").glob("**/*.yaml"))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)  # once: `jsonschema.validate` would do it for every file
    valid = kind(schema)
    for file in shipped:
        valid.validate(yaml.safe_load(file.read_text()))
    ran = gate.run("thresholds", "validate", *map(str, shipped), reports=False)
    assert ran.code == 0 and ran.stdout.count(": ok") == len(shipped) > 3
    with pytest.raises(jsonschema.ValidationError):
        valid.validate({"shm": {"min_fre_gib": 1}})


def test_effective_values_name_their_origin(gate: Gate) -> None:
    (gate.folder / "site.yaml").write_text("shm: {min_free_gib: 1}\n")
    ran = gate.run("thresholds", "show", "site.yaml", "--effective", "--set=shm.margin=2",
                   reports=False, env={"PREFLIGHT_SET": "shm.timeout_s=9"})  # fmt: skip
    rows = {line.split()[0]: line.split()[1:3] for line in ran.stdout.splitlines()}
    assert rows["shm.min_free_gib"] == ["1", "site.yaml:1"]
    assert rows["shm.margin"] == ["2", "--set"]
    assert rows["shm.timeout_s"] == ["9", "PREFLIGHT_SET"]
    assert re.fullmatch(r"default.yaml:\d+", rows["shm.write"][1])


@pytest.mark.parametrize("format", ["table", "json", "junit", "markdown"])
def test_a_saved_report_is_drawn_as_the_run_drew_it(gate: Gate, format: str) -> None:
    ran = gate.run(*QUICK, FAIL_LIMITS, f"--format={format}")
    assert_one_verdict(ran, 1)
    again = gate.run("report", str(gate.reports / "preflight.json"), f"--format={format}",
                     reports=False, standin=HEAVY)  # fmt: skip
    assert again.code == 0 and again.stdout == ran.stdout
    if format == "json":
        assert json.loads(ran.stdout) == ran.report
    if format == "junit":
        assert ran.stdout.encode() == (gate.reports / "preflight.xml").read_bytes()
        assert read(ran.stdout.encode()).failures == 1


@pytest.mark.parametrize(
    "content", [None, "", "{}", "not JSON", '{"schema_version": "9.0"}', "[1]"]
)
def test_a_report_that_cannot_be_read_is_wrong_usage(gate: Gate, content: str | None) -> None:
    path = gate.folder / "saved.json"
    if content is not None:
        path.write_text(content)
    ran = gate.run("report", str(path), reports=False)
    assert ran.code == 2 and ran.stdout == ""
    assert len(ran.stderr.splitlines()) <= 2 and str(path) in ran.stderr


@pytest.mark.parametrize(("more", "code", "word"), [((), 0, "PASS"), ((FAIL_LIMITS,), 1, "FAIL")])
def test_quiet_prints_the_verdicts_line_only(
    gate: Gate, more: tuple[str, ...], code: int, word: str
) -> None:
    talkative = "--set=shm.write=bounded"
    loud = gate.run(*QUICK, *more, talkative, reports=False)
    assert "shm: writing" in loud.stderr
    ran = gate.run(*QUICK, *more, talkative, "--quiet", env={"PREFLIGHT_NONSENSE": "1"})
    assert_one_verdict(ran, code)
    (line,) = ran.stdout.splitlines()
    assert line.startswith(f"{word} node ") and ran.stderr == ""


def test_no_escape_codes_in_a_pipe(gate: Gate) -> None:
    ran = gate.run(*QUICK, FAIL_LIMITS, env={"TERM": "xterm-256color", "FORCE_COLOR": "1"})
    assert_one_verdict(ran, 1)
    assert not ANSI.search(ran.stdout + ran.stderr)


def test_explain_shows_what_passed_too(gate: Gate) -> None:
    short, long = (gate.run(*QUICK, *more, reports=False) for more in ((), ("--explain",)))
    assert "shm.need" not in short.stdout and "shm.need" in long.stdout


def on_a_terminal(gate: Gate, *arguments: str, env: dict[str, str | None]) -> tuple[int, str]:
    """Run with a pseudo-terminal for all three streams; code and everything written to it."""
    master, slave = pty.openpty()
    changes = {"TERM": "xterm", "COLUMNS": "90", "LINES": "30", **env}
    process = subprocess.Popen(
        [*MODULE, *arguments], stdin=slave, stdout=slave, stderr=slave, close_fds=True,
        start_new_session=True, cwd=gate.folder, env=gate.environment(**changes),
    )  # fmt: skip
    os.close(slave)
    written = b""
    try:
        with suppress(OSError):  # the last writer is gone
            while chunk := os.read(master, 65536):
                written += chunk
        return process.wait(10), written.decode(errors="replace")
    finally:
        os.close(master)
        kill(process.pid, signal.SIGKILL)


def test_a_terminal_gets_colours_and_a_living_line(gate: Gate) -> None:
    code, text = on_a_terminal(gate, *QUICK, "--set=shm.write=bounded", env={})
    assert code == 0
    assert "\x1b[1;32mPASS" in text  # bold green
    assert "\r\x1b[K" in text and "writing" in text  # drawn over itself
    last = text.rindex("\r\x1b[K")
    assert text.index("PASS node") > last  # and gone before the verdict


@pytest.mark.parametrize(("more", "env"), [
    (("--no-color",), {}), ((), {"NO_COLOR": "1"}), ((), {"PREFLIGHT_NO_COLOR": "1"}),
    ((), {"TERM": "dumb"}),
])  # fmt: skip
def test_a_terminal_gets_no_colours_when_asked(
    gate: Gate, more: tuple[str, ...], env: dict[str, str | None]
) -> None:
    code, text = on_a_terminal(gate, *QUICK, *more, env=env)
    assert code == 0 and "PASS node" in text
    assert not re.search(r"\x1b\[[\d;]*m", text)
    if "TERM" in env:
        assert "\x1b" not in text  # a dumb terminal cannot draw over a line either


def test_a_terminal_that_goes_away_costs_nothing_but_the_words(gate: Gate) -> None:
    master, slave = pty.openpty()
    running = gate.start(*QUICK, standin="hang:shm", stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    gate.mark()
    os.close(master)
    (gate.folder / "mark.go").touch()
    assert running.process.wait(30) == 0
    assert json.loads((gate.reports / "preflight.json").read_text())["exit_code"] == 0
