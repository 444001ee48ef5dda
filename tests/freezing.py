"""Freezes processes with the cgroup freezer: the simplest stand-in for an unkillable hang."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_V1 = Path("/sys/fs/cgroup/freezer")
_V2 = Path("/sys/fs/cgroup")


@contextmanager
def freezer() -> Iterator[Callable[[Iterable[int]], None]]:
    """Yields a function that freezes pids; all are thawed at the end. Skips where it cannot."""
    if os.geteuid() != 0:
        pytest.skip("freezing a process needs root")
    v1 = (_V1 / "tasks").exists()
    folder = (_V1 if v1 else _V2) / f"preflight-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup freezer here: {error.strerror}")
    state, on, off = (
        (folder / "freezer.state", "FROZEN", "THAWED")
        if v1
        else (folder / "cgroup.freeze", "1", "0")
    )

    def freeze(pids: Iterable[int]) -> None:
        for pid in pids:
            (folder / "cgroup.procs").write_text(str(pid))
        state.write_text(on)

    try:
        yield freeze
    finally:
        state.write_text(off)
        for _ in range(500):
            if not (folder / "cgroup.procs").read_text().strip():
                break
            time.sleep(0.01)
        folder.rmdir()
