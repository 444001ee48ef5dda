"""What one rank's loader may still read of the data path, and what it has read.

A run has one budget for all of its checks and ranks (run.max_read_gib), so that a fleet that starts
at once does not load its file server for minutes. Generated samples cost nobody anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from preflight.checks.contract import Unit
from preflight.machine.process_io import read_bytes

_GIB = 2**30
_CHECKS = ("storage", "dataloader")  # that read of the path before


class ReadBudget:
    """Counts what the workers of a loader read, those that have ended included."""

    def __init__(self, unit: Unit) -> None:
        self._machine = unit.machine
        self._bytes = allowed_gib(unit) * _GIB
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._look_bytes = 0

    def look(self, workers: Iterable[int]) -> None:
        """Count on; to be called once a block. What a worker read before its first look is lost."""
        before = self._read()
        for pid in workers:
            total = read_bytes(self._machine, [pid])
            if total is not None:
                self._first.setdefault(pid, total)
                self._last[pid] = total
        self._look_bytes = self._read() - before

    @property
    def spent(self) -> bool:
        """Whether the next look would come too late."""
        return self._read() + self._look_bytes >= self._bytes

    @property
    def read_gib(self) -> float:
        """So far."""
        return round(self._read() / _GIB, 4)

    def _read(self) -> int:
        return sum(self._last[pid] - self._first[pid] for pid in self._last)


def allowed_gib(unit: Unit) -> float:
    """The part of what the run has left that one rank of the check may use up."""
    if unit.job.data is None:
        return math.inf
    used = sum(read_gib(unit.earlier.get(check)) for check in _CHECKS)
    left = max(0.0, unit.job.max_read_gib - used)
    return float(unit.limits.max_read_share) * left / unit.job.ranks


def read_gib(readings: Any) -> float:
    """What a check has read: one reading, or one for each rank."""
    each = readings if isinstance(readings, list) else [readings]
    return sum(one.get("read_gib") or 0.0 for one in each if isinstance(one, Mapping))
