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
from types import FrameType

UNDECIDED = 3
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came before the run could take care of it."""

    def __init__(self, code: int) -> None:
        self.code = code


def main() -> None:
    """The console script. Leaves through os._exit: a stuck thread must not hold up the code."""
    _reopen_closed_streams()
    _leave(_guarded())


def _guarded() -> int:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would hide our children's ends
        for name in _SIGNALS:
            # A signal that the caller had ignored (nohup) stays ignored.
            if signal.getsignal(name) is not signal.SIG_IGN:
                signal.signal(name, _too_early)
        # Plugins that an image carries for pydantic have no business in a gate, and looking for
        # them costs every start a tenth.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        from preflight.cli import run_command

        return run_command(sys.argv[1:])
    except Interrupted as signalled:
        return _ended("stopped by a signal before anything was measured", signalled.code)
    except BaseException as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        line = f"preflight itself failed ({text}): nothing is decided about this node"
        return _ended(line, UNDECIDED)


def _ended(line: str, code: int) -> int:
    for name in _SIGNALS:
        signal.signal(name, signal.SIG_IGN)  # the last words are short
    with contextlib.suppress(OSError):
        sys.stderr.write(f"preflight: {line}\n")
    with contextlib.suppress(BaseException):
        from preflight.last_words import leave_report

        leave_report(line, sys.argv[1:], os.environ, code)
    return code


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
