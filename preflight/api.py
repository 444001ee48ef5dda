"""`preflight.run`: the gate for Python code, measured in the same isolated processes as always.

The caller's own process stays as it is: no signal handler, no change of environment, folder or
start method, no torch, nothing printed. PREFLIGHT_ variables that stand for options belong to the
command and are not read here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import PurePath
from queue import SimpleQueue
from typing import TypeAlias, get_args

from preflight import exit_code
from preflight.exit_code import ExitOn
from preflight.gate import Gate
from preflight.isolate import Stop
from preflight.model import Report
from preflight.report import FORMATS, notebook
from preflight.report.headline import headline
from preflight.run_options import Options, Talk
from preflight.settings import Request

StrPath: TypeAlias = str | os.PathLike[str]
Scalar: TypeAlias = bool | int | float | str | None
SetValue: TypeAlias = Scalar | Sequence[Scalar]
Progress: TypeAlias = Callable[[str, str], object]

_FALLBACK_WIDTH = 100


class GateReport(Report):
    """The record of one run: what preflight.json holds, as Python objects.

    `print(report)` gives the command's page; a notebook shows the same as a table.
    """

    @property
    def passed(self) -> bool:
        """Whether the job may start: the command would have exited 0."""
        return self.exit_code == exit_code.PASS

    def __str__(self) -> str:
        width = shutil.get_terminal_size((_FALLBACK_WIDTH, 24)).columns
        return FORMATS["table"](self, width=width, explain=self._explains()).decode().rstrip("\n")

    def __repr__(self) -> str:
        return f"<preflight.GateReport: {headline(self)}>"

    def _repr_html_(self) -> str:
        return notebook.render(self, explain=self._explains()).decode()

    def _explains(self) -> bool:
        return bool(self.settings.options.get("explain"))


def run(
    *,
    thresholds: StrPath | None = None,
    workload: str | None = None,
    gpu: str | None = None,
    data: StrPath | None = None,
    dataset: str | None = None,
    set: Mapping[str, SetValue] | None = None,
    check: str | Iterable[str] = (),
    skip: str | Iterable[str] = (),
    waive: str | Iterable[str] = (),
    report_dir: StrPath | None = None,
    deadline_s: float | None = None,
    exit_on: ExitOn = "any",
    explain: bool = False,
    progress: Progress | None = None,
) -> GateReport:
    """Measure whether this node can keep its GPU fed, as `preflight run` does; look at `.passed`.

    Options have the names and the meaning of the command line's. `set` takes single values by
    their dotted keys, {"loader.num_workers": 8}, typed as in a threshold file; None removes a key.
    `dataset` is the text "module:factory": the module is imported in the measuring processes, not
    in this one. `check`, `skip` and `waive` take one id or several. With `explain` the report
    shows passes too.
    `progress(check, text)` is called in the calling thread (`progress=print` will do); what it
    raises ends the run.

    It may be called from any thread, script or notebook. Whatever interrupts it, Ctrl-C above all,
    first ends the measuring processes and writes the reports, then goes on to the caller; a second
    Ctrl-C does not wait for that.

    Raises:
        ValueError: an option or a threshold file is wrong, or `report_dir` cannot be written;
            nothing was measured. A node that fails is no exception: it is a report.
        RuntimeError: sys.executable is not a Python that could be started for the measuring.
    """
    if exit_on not in get_args(ExitOn):
        raise ValueError(f"exit_on={exit_on!r} is none of {', '.join(get_args(ExitOn))}")
    _need_interpreter()
    options = Options(
        request=Request(
            thresholds=_path("thresholds", thresholds),
            workload=workload,
            gpu=gpu,
            set_options=tuple(_assignment(key, value) for key, value in (set or {}).items()),
            deadline_s=None if deadline_s is None else float(deadline_s),
        ),
        check=_ids(check),
        skip=_ids(skip),
        waive=_ids(waive),
        data=_path("data", data),
        dataset=dataset,
        report_dir=_path("report_dir", report_dir),
        exit_on=exit_on,
        explain=explain,
    )
    report = _in_background(options, progress or _say_nothing)
    if report.exit_code == exit_code.USAGE:
        raise ValueError(report.reason)
    return GateReport.model_construct(**dict(report))


def _in_background(options: Options, progress: Progress) -> Report:
    """Run the gate in a thread of its own, so that Ctrl-C reaches the thread that waits for it."""
    stop, done = Stop(), Future[Report]()
    heard = SimpleQueue[tuple[str, str] | None]()
    talk = Talk(progress=lambda check, text: heard.put((check, text)))

    # The container's last word is the program's that asks, not ours: a pass would stand beside
    # whatever ends it hours later.
    gate = Gate(options, dict(os.environ), stop, talk, leaves_message=lambda code: False)

    def work() -> None:
        try:
            done.set_result(gate.run())
        except BaseException as error:
            done.set_exception(error)
        finally:
            heard.put(None)

    worker = threading.Thread(target=work, name="preflight.run")
    try:
        worker.start()
        while (said := heard.get()) is not None:
            progress(*said)
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        stop.signal = signal.SIGINT if interrupted else signal.SIGTERM
        if worker.ident is not None:
            # Not join(): before Python 3.13 one that Ctrl-C breaks takes the thread for ended.
            wait([done])
        raise
    worker.join()
    return done.result()


def _need_interpreter() -> None:
    """Refuse to start a program that is not Python: a frozen one would run itself, endlessly."""
    name = PurePath(sys.executable or "").name
    if getattr(sys, "frozen", False) or not ("python" in name or "pypy" in name):
        raise RuntimeError(
            f"sys.executable is {sys.executable!r}, and preflight measures in Python processes of "
            "its own: set sys.executable to a Python that has preflight and torch, or run the "
            "command `preflight` in front of this program"
        )


def _path(option: str, path: StrPath | None) -> str | None:
    if path is None:
        return None
    text = os.fsdecode(path)
    if not text:
        raise ValueError(f"{option} is empty: name a path, or leave it out")
    return text


def _ids(ids: str | Iterable[str]) -> tuple[str, ...]:
    return (ids,) if isinstance(ids, str) else tuple(ids)


def _assignment(key: str, value: SetValue) -> str:
    if isinstance(value, Mapping):
        raise ValueError(f"set: {key} holds keys: write each by itself, as {key}.KEY")
    # JSON is YAML with its types written out: a text "8" stays a text.
    try:
        return f"{key}={json.dumps(value, ensure_ascii=False)}"
    except TypeError:
        raise ValueError(
            f"set: {key}: {value!r} is no number, text, bool, None or list of them"
        ) from None


def _say_nothing(check: str, text: str) -> None:
    pass
