"""The guard around the command: standard library only.

Python exits 1 on a crash, and 1 means "this node failed". So an import error, an unexpected
exception, a closed or full standard output never become a 1: they are a 3 with one line and, if
possible, a report.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.launch import Launch

UNDECIDED = 3
_GATE_CODES = (1, 2, UNDECIDED)
_BEFORE_A_COMMAND = 90
"""The gate's 1, 2 and 3 are 91, 92 and 93 in front of a command, which has codes of its own."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came before the run could take care of it."""

    def __init__(self, code: int) -> None:
        self.code = code


def main() -> None:
    """The console script. Leaves through os._exit: a stuck thread must not hold up the code."""
    _reopen_closed_streams()
    arguments, command = _split(sys.argv[1:])
    try:
        code = _run(arguments, command)
    except Interrupted as signalled:  # between two steps that each take care of it
        code = signalled.code
    _ignore_signals()
    if command is not None and code in _GATE_CODES:
        code += _BEFORE_A_COMMAND
    _leave(code)


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """The gate's own arguments, and the command behind `--`; None where there is no `--`."""
    gates = bool(arguments) and (arguments[0] == "run" or arguments[0].startswith("-"))
    if not gates or "--" not in arguments:
        return arguments, None
    end = arguments.index("--")
    return arguments[:end], arguments[end + 1 :]


def _run(arguments: list[str], command: list[str] | None) -> int:
    launch: Launch | None = None
    ignored = {name for name in _SIGNALS if signal.getsignal(name) is signal.SIG_IGN}

    def gate() -> int:
        nonlocal launch
        # Ignored, it would hide our children's ends.
        child_ends = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        catch_signals()
        if command is not None:
            from preflight.launch import Launch

            launch = Launch(arguments, command, child_ends)
            answer = launch.before_the_gate()
            if answer is not None:
                return answer
        # Plugins that an image carries for pydantic have no business in a gate, and looking for
        # them costs every start a tenth.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        from preflight.cli import run_command

        return run_command(arguments, launch)

    def catch_signals() -> None:
        for name in _SIGNALS:
            if name not in ignored:  # what the caller had ignored (nohup) stays so
                signal.signal(name, _too_early)

    def end(launch: Launch, code: int) -> int:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
            catch_signals()  # the gate broke and said its last words; other ranks may keep us yet
        return launch.end(code)

    def reports() -> bool:
        return launch is None or not launch.waits  # the reports are local rank 0's

    code = _guarded(gate, reports)
    launched: Launch | None = launch
    return code if launched is None else _guarded(lambda: end(launched, code), lambda: False)


def _guarded(work: Callable[[], int], reports: Callable[[], bool]) -> int:
    """The code of `work`; what breaks or stops it becomes one of ours, with a report if wanted."""
    try:
        return work()
    except Interrupted as signalled:
        line, code = "stopped by a signal before anything was measured", signalled.code
    except BaseException as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        line = f"preflight itself failed ({text}): nothing is decided about this node"
        code = UNDECIDED
    _ignore_signals()  # the last words are short
    with contextlib.suppress(OSError):
        sys.stderr.write(f"preflight: {line}\n")
    with contextlib.suppress(BaseException):
        from preflight.last_words import leave_report

        if reports():
            leave_report(line, sys.argv[1:], os.environ, code)
    return code


def _ignore_signals() -> None:
    for name in _SIGNALS:
        signal.signal(name, signal.SIG_IGN)


def _too_early(number: int, frame: FrameType | None) -> None:
    raise Interrupted(130 if number == signal.SIGINT else 143)


def _reopen_closed_streams() -> None:
    """Give fds 0 to 2 to /dev/null where they are closed, before a pipe of ours gets them."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if name != "stdin" else "r"))  # noqa: SIM115


def _leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
