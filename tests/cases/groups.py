"""Conditions of the staged cases that are control groups, and the neighbours beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.cases.staging import Place, Stage, Under
from tests.command.cgroups import limited

_PERIOD_US = 100_000
_BUSY = "while True: pass"
_SHIELD = 200_000
"""CPU shares beside which an ordinary group's 1024 do not count."""


@contextmanager
def shielded(place: Place) -> Iterator[Under]:
    """Before everyone else on the CPUs where that can be had, so that neighbours do not count."""
    try:
        with _cpu(_SHIELD) as joined:
            yield Under(joined)
    except pytest.skip.Exception:
        yield Under()


def cpu_quota(cpus: float) -> Stage:
    """No more than so many CPUs' time, and that before everyone else."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with _cpu(_SHIELD, quota_us=int(cpus * _PERIOD_US)) as joined:
            yield Under(joined)

    return stage


def weighed(shares: int, neighbours: int) -> Stage:
    """So many CPU shares beside a group of busy processes, one a CPU, that has `neighbours`."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with (
            _cpu(neighbours) as theirs,
            _cpu(shares) as joined,
            _busy(len(os.sched_getaffinity(0)), theirs),
        ):
            yield Under(joined)

    return stage


def beside(count: int) -> Stage:
    """Beside so many processes that only use CPU time."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with _busy(count):
            yield Under()

    return stage


def pids(most: int) -> Stage:
    """No more than so many processes and threads."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        limit = {"pids.max": str(most)}
        with limited("pids", limit, limit) as joined:
            yield Under(joined)

    return stage


def memory(mib: int) -> Stage:
    """No more than so much memory."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        limit = str(mib << 20)
        v1, v2 = {"memory.limit_in_bytes": limit}, {"memory.max": limit, "memory.swap.max": "0"}
        with limited("memory", v1, v2) as joined:
            yield Under(joined)

    return stage


def _cpu(shares: int, quota_us: int | None = None) -> AbstractContextManager[tuple[str, ...]]:
    # The kernel's own conversion, as cgroup runtimes have it: 2..262144 shares are 1..10000.
    v1, v2 = {"cpu.shares": str(shares)}, {"cpu.weight": str(1 + (shares - 2) * 9999 // 262142)}
    if quota_us is not None:
        v1 |= {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota_us)}
        v2 |= {"cpu.max": f"{quota_us} {_PERIOD_US}"}
    return limited("cpu", v1, v2)


@contextmanager
def _busy(count: int, wrapped: tuple[str, ...] = ()) -> Iterator[None]:
    started = [
        subprocess.Popen([*wrapped, sys.executable, "-c", _BUSY], stdin=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
