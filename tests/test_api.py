"""`preflight.run` in one process: its arguments, its ends, and that the caller stays as it was."""

from __future__ import annotations

import inspect
import json
import logging
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import preflight
from preflight import api, cli, gate
from preflight.model import Report
from preflight.outcome import Outcome
from preflight.report.headline import headline
from preflight.report.json_report import parse
from tests.command.running import wait_until
from tests.report.reports import FAILING, PASSING, REPORTS

pytestmark = pytest.mark.timeout(60)


def run(**options: Any) -> preflight.GateReport:
    """A run of the limits check alone, which needs no child, whatever this machine has."""
    usual = {"limits.min_memory_headroom_gib": 0, "loader.num_workers": 1}
    options = {"thresholds": "cpu", "check": "limits", **options}
    options["set"] = {**usual, **options.get("set", {})}
    return preflight.run(**options)


def drawn_from(report: Report) -> preflight.GateReport:
    return preflight.GateReport.model_construct(**dict(report))


# -- arguments ----------------------------------------------------------------------------------


def test_every_option_is_one_of_the_command() -> None:
    ours = set(inspect.signature(preflight.run).parameters) - {"progress"}
    names = {"deadline_s": "deadline", "set": "set_"}
    assert {names.get(name, name) for name in ours} <= set(inspect.signature(cli.run).parameters)


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("loader.num_workers", 2, 2),
        ("loader.pin_memory", False, False),
        ("limits.max_workers_per_cpu", 2.5, 2.5),
        ("limits.min_memory_headroom_gib", 1e-7, 1e-7),
        ("sample.shape", (3, 32, 32), [3, 32, 32]),
        ("sample.codec", "jpeg", "jpeg"),
        ("run.checks", ["limits", "shm"], ["limits", "shm"]),
    ],
)
def test_values_are_set_as_what_they_are(key: str, value: Any, kept: Any) -> None:
    setting = run(set={key: value}).settings.values[key]
    assert (setting.value, setting.from_) == (kept, "--set")


def test_none_removes_a_key() -> None:
    with pytest.raises(ValueError, match="codec is missing"):
        run(set={"sample.codec": None})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("loader.num_workers", "2", "whole number"),
        ("loader.num_workers", math.nan, "not a finite number"),
        ("loader", {"num_workers": 2}, "each by itself"),
        ("loader.num_workers", object(), "is no number, text"),
        ("num_workers", 2, "SECTION.KEY"),
        ("loader.num_wrokers", 2, "Did you mean num_workers"),
    ],
)
def test_a_wrong_value_is_a_value_error(key: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run(set={key: value})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"check": "limts"}, "Did you mean limits"),
        ({"check": "limits", "skip": ["limits"]}, "nothing is left to run"),
        ({"waive": ("limits.nofil",)}, "Did you mean limits.nofile"),
        ({"thresholds": "cqu"}, "Did you mean cpu"),
        ({"thresholds": ""}, "thresholds is empty"),
        ({"data": ""}, "data is empty"),
        ({"report_dir": ""}, "report_dir is empty"),
        ({"dataset": "data.py"}, "write MODULE:FACTORY"),
        ({"report_dir": "/proc/nowhere"}, "no report could be written"),
        ({"exit_on": "fail"}, "none of any, node"),
        ({"deadline_s": 0}, "more than 0"),
        ({"deadline_s": math.inf}, "finite"),
    ],
)
def test_wrong_use_is_a_value_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run(**options)


def test_wrong_use_replaces_an_old_pass_on_disk(tmp_path: Path) -> None:
    run(report_dir=tmp_path)
    with pytest.raises(ValueError):
        run(report_dir=tmp_path, check="limts")
    assert json.loads((tmp_path / "preflight.json").read_text())["exit_code"] == 2


@pytest.mark.parametrize(
    "check", ["limits", ["limits"], iter(["limits"])], ids=["one", "list", "iterator"]
)
def test_one_id_or_several(check: Any) -> None:
    report = run(check=check)
    assert [result.check for result in report.results] == ["limits"]
    assert report.settings.options["check"] == ["limits"]


def test_only_the_variables_that_are_no_options_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFLIGHT_CHECK", "shm")
    monkeypatch.setenv("PREFLIGHT_SET", "loader.num_workers=7")
    monkeypatch.setenv("PREFLIGHT_THRESHOLDS", "nonsense")
    monkeypatch.setenv("PREFLIGHT_MISSPELT", "1")
    monkeypatch.setenv("NODE_NAME", "gpu-b17")
    report = run()
    assert [result.check for result in report.results] == ["limits"]
    assert report.settings.values["loader.num_workers"].value == 1
    assert (report.node.name, report.settings.warnings) == ("gpu-b17", ())


@pytest.mark.parametrize("executable", [None, "", "/usr/sbin/uwsgi", "/opt/app/app"])
def test_no_python_to_measure_in_is_refused(
    executable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "Gate", None)
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(RuntimeError, match=r"sys\.executable is "):
        run()


def test_a_frozen_program_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "Gate", None)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(RuntimeError):
        run()


# -- the report ---------------------------------------------------------------------------------


def test_a_node_that_fails_is_a_report(tmp_path: Path) -> None:
    report = run(set={"limits.min_memory_headroom_gib": 1e6}, report_dir=tmp_path)
    assert (report.passed, report.exit_code, report.outcome) == (False, 1, Outcome.FAIL)
    saved = parse((tmp_path / "preflight.json").read_text())
    assert saved.model_dump() == report.model_dump()


@pytest.mark.parametrize("name", REPORTS)
def test_passed_is_what_the_command_would_exit_by(name: str) -> None:
    report = drawn_from(REPORTS[name])
    assert report.passed == (report.exit_code == 0)


def test_it_is_shown_as_a_page_a_line_and_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    report = drawn_from(FAILING)
    page = str(report)
    assert page.startswith("FAIL node gpu-b17") and "give the container 7 CPUs" in page
    assert max(map(len, page.split("\n"))) <= 70
    assert repr(report) == f"<preflight.GateReport: {headline(FAILING)}>"
    assert "\n" not in repr(report)
    assert report._repr_html_().startswith("<div>") and "give the container" in page


def test_explain_shows_what_passed() -> None:
    assert "gpus.name" not in str(drawn_from(PASSING))
    explained = PASSING.settings.model_copy(update={"options": {"explain": True}})
    report = drawn_from(PASSING.model_copy(update={"settings": explained}))
    assert "gpus.name [GPU 1]" in str(report) and "gpus.name [GPU 1]" in report._repr_html_()
    assert run(explain=True).settings.options["explain"] is True


def test_a_report_can_be_sent_to_another_process() -> None:
    report = run()
    again = pickle.loads(pickle.dumps(report))
    assert again == report and again.passed == report.passed


def test_the_containers_termination_message_is_the_programs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = tmp_path / "termination-log"
    message.touch()
    monkeypatch.setattr(gate, "_TERMINATION_LOG", message)
    assert run().passed and message.read_text() == ""


# -- ends ---------------------------------------------------------------------------------------


class Held:
    """A gate that says something and then runs until it is stopped."""

    stopped_by: signal.Signals | None = None
    holds: bool = False

    def __init__(
        self, options: Any, environ: Any, stop: Any, talk: Any, *, leaves_message: Any
    ) -> None:
        self.stop, self.talk = stop, talk

    def run(self) -> Report:
        self.talk.progress("shm", "writing")
        deadline = time.monotonic() + 20
        while (self.stop.signal is None or Held.holds) and time.monotonic() < deadline:
            time.sleep(0.005)
        Held.stopped_by = self.stop.signal
        return PASSING


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> type[Held]:
    monkeypatch.setattr(api, "Gate", Held)
    monkeypatch.setattr(Held, "stopped_by", None)
    monkeypatch.setattr(Held, "holds", False)
    return Held


def raising(error: BaseException) -> Callable[[str, str], None]:
    def progress(check: str, text: str) -> None:
        raise error

    return progress


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (KeyboardInterrupt(), signal.SIGINT),
        (SystemExit(7), signal.SIGTERM),
        (TimeoutError("an alarm of the caller's"), signal.SIGTERM),
        (ZeroDivisionError("in the progress function"), signal.SIGTERM),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_interrupts_it_ends_the_run_first_and_goes_on(
    held: type[Held], error: BaseException, number: signal.Signals
) -> None:
    with pytest.raises(type(error)) as raised:
        run(progress=raising(error))
    assert raised.value is error
    assert held.stopped_by is number
    assert "preflight.run" not in {thread.name for thread in threading.enumerate()}


def test_a_second_ctrl_c_does_not_wait(held: type[Held], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "holds", True)

    def impatient(futures: Any) -> None:
        raise KeyboardInterrupt("again")

    monkeypatch.setattr(api, "wait", impatient)
    with pytest.raises(KeyboardInterrupt, match="again"):
        run(progress=raising(KeyboardInterrupt()))
    (worker,) = [t for t in threading.enumerate() if t.name == "preflight.run"]
    assert held.stopped_by is None
    held.holds = False
    worker.join(20)  # it ends the measuring by itself
    assert held.stopped_by is signal.SIGINT


def test_a_fault_of_the_gate_reaches_the_caller(
    held: type[Held], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "run", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run()


def test_no_thread_to_be_had_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="new thread"):
        run()


def test_progress_is_told_in_the_calling_thread() -> None:
    heard: list[tuple[str, str, int]] = []
    run(
        check="shm",
        set={"shm.min_free_gib": 0},
        progress=lambda check, text: heard.append((check, text, threading.get_ident())),
    )
    assert heard[0][:2] == ("shm", "")
    assert {thread for _, _, thread in heard} == {threading.get_ident()}


# -- the caller's process -----------------------------------------------------------------------


def state() -> dict[str, Any]:
    """What of this process a library should leave alone."""
    return {
        "handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": [line for line in Path("/proc/self/status").read_text().split("\n")
                  if line.startswith("Umask")],
        "descriptors": set(os.listdir("/proc/self/fd")),
        "threads": set(threading.enumerate()),
        "path": [*sys.path],
        "filters": [*warnings.filters],
        "logging": (logging.root.level, [*logging.root.handlers]),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "switch": sys.getswitchinterval(),
    }  # fmt: skip


@pytest.mark.filterwarnings("error")
def test_the_caller_stays_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = {"check": "shm", "set": {"shm.min_free_gib": 0}, "report_dir": tmp_path / "reports"}
    run(**options)  # what Python itself keeps open after a first time
    before = state()
    assert run(**options).results
    wait_until(state, lambda now: now == before, 10)  # a thread may be on its last line
    assert capfd.readouterr() == ("", "")


def test_the_package_is_free_until_it_is_used() -> None:
    code = (
        "import sys, __future__; before = set(sys.modules); import preflight\n"
        "assert set(sys.modules) - before == {'preflight'}\n"
        "assert {'run', 'GateReport', '__version__'} <= set(dir(preflight))\n"
        "from preflight import *\n"
        "assert run is preflight.run and GateReport.__module__ == 'preflight.api'\n"
        "assert not hasattr(preflight, 'runn')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
