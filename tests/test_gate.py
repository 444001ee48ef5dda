"""The gate in one process: what it leaves behind at every end, and what it says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight import gate, prepare
from preflight.ended import Ended
from preflight.gate import Gate
from preflight.isolate import Stop
from preflight.model import Report
from preflight.outcome import Outcome
from preflight.report.headline import headline
from preflight.run_options import Options, Talk
from preflight.settings import Request
from tests.command.running import PASS_HERE

pytestmark = pytest.mark.timeout(60)


def run(talk: Talk | None = None, **options: Any) -> Report:
    """A run of the limits check alone, which needs no child."""
    options = {"request": Request(thresholds="cpu"), "check": ("limits",), **options}
    return Gate(Options(**options), os.environ, Stop(), talk or Talk()).run()


@pytest.fixture
def termination_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "termination-log"
    monkeypatch.setattr(gate, "_TERMINATION_LOG", path)
    return path


def test_the_termination_message_is_the_headline(termination_log: Path) -> None:
    termination_log.touch()
    report = run()
    assert termination_log.read_text() == headline(report)
    assert termination_log.read_text().startswith("PASS node ")


def test_a_termination_log_that_nobody_made_is_not_made(termination_log: Path) -> None:
    run()
    assert not termination_log.exists()


def test_a_termination_log_that_cannot_be_written_is_a_note(
    termination_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    termination_log.touch()
    monkeypatch.setattr(Path, "write_bytes", full)
    notes: list[str] = []
    assert run(Talk(note=notes.append)).exit_code == 0
    assert notes == [f"{termination_log} could not be written: No space left on device"]


def test_a_fault_of_our_own_is_undecided_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(prepare, "make_plan", broken)
    report = run(report_dir=str(tmp_path))
    assert (report.exit_code, report.outcome, report.complete) == (3, Outcome.ERROR, True)
    assert "ZeroDivisionError: oops" in (report.reason or "")
    assert json.loads((tmp_path / "preflight.json").read_text())["exit_code"] == 3


@pytest.mark.parametrize("option", ["report_only", "allow_undecided"])
def test_a_fault_of_our_own_does_not_block_a_roll_out(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "make_plan", None)
    report = run(**{option: True})
    assert (report.exit_code, report.outcome) == (0, Outcome.ERROR)
    assert "TypeError" in (report.reason or "")


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Ended("died", 0.1, exit_signal=9), "gave no answer (died)"),
        (Ended("timeout", 60.0, ready=False, went=False), "gave no answer (timeout)"),
        (Ended("raised", 0.1, text="MemoryError: "), "MemoryError"),
    ],
)
def test_a_look_at_the_data_that_failed_is_undecided(
    monkeypatch: pytest.MonkeyPatch, ended: Ended, said: str
) -> None:
    monkeypatch.setattr(prepare, "run_isolated", lambda request, **options: ended)
    report = run(data="/data")
    assert report.exit_code == 3
    assert said in (report.reason or "")


def test_reports_lost_in_the_middle_are_said_once_and_the_verdict_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, notes = tmp_path / "reports", []

    def vanish(made: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **options: Any) -> Any:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
            return made(*args, **options)

        return make

    monkeypatch.setattr(prepare, "make_plan", vanish(prepare.make_plan))
    report = run(Talk(note=notes.append), report_dir=str(folder))
    assert (report.exit_code, report.outcome) == (0, Outcome(PASS_HERE))
    assert len(notes) == 1 and "reports are lost" in notes[0]
    assert report.settings.warnings == (notes[0],)


def test_a_report_that_cannot_be_drawn_any_more_does_not_cost_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    junit, drawn = gate.FORMATS["junit"], []

    def broken(report: Report) -> bytes:
        drawn.append(report)
        if len(drawn) > 1:
            raise KeyError("oops")
        return junit(report)

    notes: list[str] = []
    monkeypatch.setattr(gate, "FORMATS", {**gate.FORMATS, "junit": broken})
    report = run(Talk(note=notes.append), report_dir=str(tmp_path))
    assert report.exit_code == 0
    assert len(notes) == 1 and "KeyError" in notes[0]


def test_stagger_waits_a_part_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate.secrets, "randbelow", lambda top: 500)
    slept: list[float] = []
    monkeypatch.setattr(gate.time, "sleep", slept.append)
    ticks = iter(range(1000))
    monkeypatch.setattr(gate.time, "monotonic", lambda: float(next(ticks)))
    said: list[str] = []
    run(Talk(progress=lambda check, text: said.append(f"{check}: {text}")), stagger_s=20.0)
    assert said[0] == "stagger: waiting 10 s"
    assert len(slept) >= 8
