"""`preflight run ... -- CMD`: the command starts, in this very process, only on a pass.

It finds everything as preflight found it: descriptors, environment, folder, signals. What the gate
and Python itself changed is put back. Standard library only: ranks that wait load nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from preflight import exit_code
from preflight.last_words import leave_report
from preflight.ranks import Door, Place, Unshared, Verdict, place, wait_for_rank_0

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # a shell's

_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
# Python ignores these for itself. What they were before cannot be known; subprocess, too, starts
# commands with the default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


_WHY = {
    exit_code.FAIL: "the gate failed",
    exit_code.USAGE: "the gate was used wrongly",
    exit_code.UNDECIDED: "the gate is undecided",
}


class Launch:
    """One command, and the gate in front of it."""

    def __init__(
        self, arguments: Sequence[str], command: Sequence[str], child_ends: object
    ) -> None:
        """`arguments` are the gate's own; `child_ends` is what SIGCHLD was set to.

        Made before anything changes the environment.
        """
        self.command = list(command)
        self._arguments, self._child_ends = arguments, child_ends
        self._environment = _environment_at_start()
        self._place: Place | None = None
        self._door: Door | None = None
        self._starts = self._quiet = False
        self._stopped: Callable[[], signal.Signals | None] = lambda: None

    @property
    def waits(self) -> bool:
        """Whether local rank 0 gates for this process."""
        return self._place is not None and self._place.rank > 0

    def before_the_gate(self) -> int | None:
        """Find the other local ranks: None where this process has to gate, else its exit code."""
        try:
            self._place = place(os.environ)
            if self._place is None:
                return None
            if not self.waits:
                self._door = Door(self._place)
                return None
            verdict = wait_for_rank_0(self._place)
        except Unshared as error:
            self._quiet = True
            self._complain(f"{error}; {self._name} was not started")
            if not self.waits:
                leave_report(str(error), self._arguments, os.environ, exit_code.UNDECIDED)
            return exit_code.UNDECIDED
        self._starts, self._quiet = verdict.starts, True  # rank 0 has said why not
        return verdict.code

    def decided(
        self, code: int, *, quiet: bool, stopped: Callable[[], signal.Signals | None]
    ) -> None:
        """The gate came to a verdict. `stopped` says which signal asked this process to end."""
        self._starts, self._quiet, self._stopped = code == exit_code.PASS, quiet, stopped

    def end(self, code: int) -> int:
        """Tell the other ranks, and become the command after a pass; returns only otherwise."""
        if self._door is not None:
            # Ranks that come later than a signal are ended by one of their own.
            missing = self._door.tell(
                Verdict(code, self._starts),
                lambda: code > exit_code.UNDECIDED or self._stopped() is not None,
            )
            if missing and self._starts:
                self._complain(f"{missing} local ranks never asked for the verdict of rank 0")
        if self._starts:
            return self._become_command()
        if code in _WHY and not self._quiet:
            self._complain(f"{self._name} was not started: {_WHY[code]}")
        return code

    @property
    def _name(self) -> str:
        return self.command[0] if self.command else "the command"

    def _become_command(self) -> int:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        _reap()
        # A signal that comes now must not get lost between the gate's handler and the command.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        ours = {name for name in _ENDING - before if signal.getsignal(name) is not signal.SIG_IGN}
        signal.pthread_sigmask(signal.SIG_BLOCK, ours)
        stopped_by = self._stopped() or next(iter(signal.sigpending() & ours), None)
        if stopped_by is not None:
            return exit_code.interrupted(signal.Signals(stopped_by))
        for name in (*ours, *_IGNORED_BY_PYTHON):
            signal.signal(name, signal.SIG_DFL)
        if self._child_ends is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            os.execvpe(self.command[0], self.command, self._environment)
        except OSError as error:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the line below must not kill us
            self._complain(f"the gate let {self._name} start, but: {error.strerror}")
            missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            return NOT_FOUND if missing else NOT_EXECUTABLE

    def _complain(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"preflight: {text}\n")
            sys.stderr.flush()


def _environment_at_start() -> dict[bytes, bytes]:
    """The environment that exec gave this process.

    os.environ is not it: in the C locale Python itself sets LC_CTYPE (PEP 538).
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
            return {name: value for name, equals, value in pairs if name and equals}
    except OSError:  # no /proc, or a process that may not be looked into
        return dict(os.environb)


def _reap() -> None:
    """Take in every child that has ended, orphans too where this is PID 1, and its signal.

    The command would not know them, and its wait() would return them.
    """
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    if signal.SIGCHLD in signal.sigpending():  # it was blocked when this process was started
        signal.sigtimedwait({signal.SIGCHLD}, 0)
