"""Looks at a running loader in, blocks out. Pure: no clock, no machine.

A block is at least `block_s` long and holds at least one sample per worker; under a quota of less
than one CPU it spans three CFS periods, because within one the loader runs and then stands still.
"""

from __future__ import annotations

from dataclasses import dataclass

from preflight.facts import Load
from preflight.measure.disturbance import delay_share, disturbance, foreign_cpu_s, own_share
from preflight.measure.stopping import Block

_PERIODS_PER_BLOCK = 3
# A tick that comes a little early must not double its block.
_EARLY = 0.9


@dataclass(frozen=True)
class Look:
    """Cumulative counters at one moment: samples finished in all workers, and who used the CPUs."""

    finished: int
    load: Load


class BlockMaker:
    """Cuts a series of looks into blocks."""

    def __init__(
        self,
        *,
        cpus: float,
        block_s: float,
        cfs_period_s: float | None,
        workers: int,
        main_pid: int,
    ) -> None:
        self._cpus = cpus
        self._min_s = block_s
        if cfs_period_s is not None and cpus < 1:
            self._min_s = max(block_s, _PERIODS_PER_BLOCK * cfs_period_s)
        self._min_samples = workers
        self._main_pid = main_pid
        self._from: Look | None = None

    def add(self, look: Look) -> Block | None:
        """Take a look; a block when one is complete. The first look only opens the first block."""
        if self._from is None:
            self._from = look
            return None
        dt_s = look.load.at_s - self._from.load.at_s
        samples = look.finished - self._from.finished
        if dt_s < _EARLY * self._min_s or samples < self._min_samples:
            return None
        block = self._block(self._from.load, look.load, dt_s, samples)
        self._from = look
        return block

    def disturbance(self, start: Load, end: Load) -> float | None:
        """The share of any stretch of time, with samples in it or not; None where it is hidden."""
        dt_s = end.at_s - start.at_s
        return self._block(start, end, dt_s, 1).disturbance if dt_s > 0 else None

    def _block(self, start: Load, end: Load, dt_s: float, samples: int) -> Block:
        if start.own_cpu_s is None or end.own_cpu_s is None:
            return Block(dt_s=dt_s, samples=samples, disturbance=None, own_share=None)
        own_s, foreign_s = end.own_cpu_s - start.own_cpu_s, None
        if start.busy_s is not None and end.busy_s is not None:
            foreign_s = foreign_cpu_s(end.busy_s - start.busy_s, own_s)
        delay = self._delay(start, end, dt_s)
        return Block(
            dt_s=dt_s,
            samples=samples,
            disturbance=disturbance(dt_s, self._cpus, foreign_s, own_s, delay),
            own_share=own_share(dt_s, self._cpus, own_s),
        )

    def _delay(self, start: Load, end: Load, dt_s: float) -> float | None:
        delays_s = {}
        for pid, total_s in end.run_delay_s.items():
            before_s = start.run_delay_s.get(pid, 0.0)
            if total_s is None or before_s is None:
                return None
            delays_s[pid] = total_s - before_s
        main_s = delays_s.pop(self._main_pid, 0.0)
        return delay_share(dt_s, list(delays_s.values()), main_s)
