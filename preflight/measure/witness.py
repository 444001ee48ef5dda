"""Gathers what the workers of a loader did while its rate was measured: the evidence for a cause.

It takes counters at the beginning and at the end, and lets the workers be looked at between.
"""

from __future__ import annotations

import time
from collections import Counter

from preflight.checks.dataloader.evidence import Evidence
from preflight.machine.process_io import disk_bytes, read_bytes
from preflight.machine.process_states import major_faults
from preflight.machine.root import Root
from preflight.measure.counters import Counters
from preflight.measure.evidence import Mark, evidence
from preflight.measure.model_rate import Spent
from preflight.measure.worker_states import WorkerStates


class Witness:
    """Of one rank's loader."""

    def __init__(
        self, machine: Root, counters: Counters, cpu_weight: int | None, workers: int
    ) -> None:
        self._machine, self._counters = machine, counters
        self._cpu_weight, self._workers = cpu_weight, workers
        self._states = WorkerStates(machine, counters)
        self._from: Mark | None = None

    @property
    def began(self) -> bool:
        """Whether anything is gathered yet."""
        return self._from is not None

    def begin(self, spent: Spent, pids: list[int]) -> None:
        """From now on; what was gathered before is forgotten."""
        self._from = self._mark(spent, pids)
        self._states.begin()

    def end(self) -> None:
        """Look at the workers no more."""
        self._states.end()

    def evidence(self, spent: Spent, pids: list[int]) -> Evidence | None:
        """What there is by now; None before it began."""
        if self._from is None:
            return None
        tally = self._states.tally()
        lines = Counter(slot.line for slot in self._counters.read() if slot.line is not None)
        return evidence(
            self._from, self._mark(spent, pids), self._workers, tally.seen, tally.uninterruptible,
            self._cpu_weight, max(lines, key=lines.__getitem__, default=None),
        )  # fmt: skip

    def _mark(self, spent: Spent, pids: list[int]) -> Mark:
        now_ns = time.monotonic_ns()
        slots, machine = self._counters.read(), self._machine
        inside = sum(s.getitem_wall_ns + _so_far(s.getitem_since_ns, now_ns) for s in slots)
        collate = sum(s.collate_wall_ns + _so_far(s.collate_since_ns, now_ns) for s in slots)
        return Mark(
            at_s=now_ns / 1e9,
            spent=spent,
            inside_s=inside / 1e9,
            collate_s=collate / 1e9,
            collate_cpu_s=sum(slot.collate_cpu_ns for slot in slots) / 1e9,
            read_bytes=read_bytes(machine, pids),
            disk_bytes=disk_bytes(machine, pids),
            major_faults=major_faults(machine, pids),
        )


def _so_far(since_ns: int | None, now_ns: int) -> int:
    """How long a call that has not come back has taken."""
    return 0 if since_ns is None else max(0, now_ns - since_ns)
