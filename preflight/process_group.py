"""Ends a child and everything in its process group, and never waits longer than it says."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

TERM_GRACE_S = 1.0
KILL_GRACE_S = 2.0


def has_exited(pid: int) -> bool:
    """Whether the child ended, without reaping it: its group id must stay ours until the sweep."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:  # somebody reaped it: SIGCHLD is ignored in this process
        return True


def end_group(pid: int, *, gently: bool) -> tuple[bool, bool]:
    """End the group of the child `pid`, which leads it.

    Returns (it had ended by itself, it is gone): a process in the kernel may not be.
    """
    by_itself = _wait_exit(pid, 0.0 if gently else TERM_GRACE_S)
    # Also to workers that outlived a finished child: the tracker of spawned ones survives this,
    # and unlinks their semaphores when they are gone.
    _signal_group(pid, signal.SIGTERM)
    _wait_until(lambda: has_exited(pid) and not _others_in_group(pid), TERM_GRACE_S)
    _signal_group(pid, signal.SIGKILL)
    return by_itself, _wait_exit(pid, KILL_GRACE_S)


def _others_in_group(pid: int) -> bool:
    """Whether processes beside its leader are left in a group."""
    try:
        folders = os.listdir("/proc")
    except OSError:
        return False
    for folder in folders:
        if folder.isdigit() and int(folder) != pid:
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path("/proc", folder, "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == pid and fields[0] != "Z":
                    return True
    return False


def _wait_exit(pid: int, seconds: float) -> bool:
    return _wait_until(lambda: has_exited(pid), seconds)


def _wait_until(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
