"""From looks at a loader to a verdict on its rate: warm-up, window, early ends. Pure, no clock.

It holds the order of things: workers start, each finishes a sample, a second passes, then blocks
are counted; a hopeless loader ends it early, `stats.max_s` at the latest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from preflight.facts import Cpu
from preflight.job import Stats
from preflight.measure.blocks import BlockMaker, Look
from preflight.measure.stopping import Block, Decision, SequentialTest, hopeless
from preflight.model import Rate

# Nothing finished for so long: the loader may hang, which is no rate. One that is only slow
# finishes a sample some time, and is judged then.
_STALLED_S = 1.0


@dataclass(frozen=True)
class Progress:
    """The loader at one moment."""

    look: Look
    delivered: int
    """Samples handed to the consumer."""
    all_started_at: float | None
    """When the last worker started; None while one has not."""
    all_finished_one: bool
    """Every worker of every rank has finished a sample."""
    budget_spent: bool = False
    """All that the run may read of the data path has been read."""


class Window:
    """Feeds the stopping rule."""

    def __init__(
        self,
        stats: Stats,
        cpu: Cpu,
        limit_samples_per_s: float,
        main_pid: int,
        *,
        workers: int,
        in_flight: float,
    ) -> None:
        """`in_flight`: samples that the loader may have ahead, workers x prefetch x batch."""
        self.test = SequentialTest(limit_samples_per_s, stats)
        self._stats, self._cpu, self._main_pid = stats, cpu, main_pid
        self._limit, self._workers, self._in_flight = limit_samples_per_s, workers, in_flight
        self._maker = self.new_maker()
        self._warm_at: float | None = None
        self._opened: Look | None = None
        self._last: Look | None = None
        self._started: Look | None = None
        """The first look at which every worker had started."""
        self._hopeless = False
        self._budget_spent = False
        self._finished = 0
        self._finished_at = -math.inf
        """When a sample was last seen to be finished."""

    @property
    def opened(self) -> bool:
        """Whether warm-up is over and blocks are counted."""
        return self._opened is not None

    def add(self, progress: Progress) -> Decision | None:
        """Take the next look; the decision once there is one."""
        self._last, now = progress.look, progress.look.load.at_s
        if self._started is None and progress.all_started_at is not None:
            self._started = progress.look
        if progress.look.finished != self._finished:
            self._finished, self._finished_at = progress.look.finished, now
        moves = now - self._finished_at < _STALLED_S
        if moves and self._is_hopeless(progress):
            self._hopeless = True
            return self._missed_by_far(progress)
        if self._opened is None and self._is_warm(progress):
            self._opened = progress.look
            self._maker = self.new_maker()
        block = self._maker.add(progress.look)
        decision = self.test.add(block) if block and self._opened else None
        if decision is None and progress.budget_spent:
            self._budget_spent = True
            return self.test.finish()
        opened = self._opened
        over = opened is not None and now - opened.load.at_s >= self._stats.max_s
        if decision is None and over and moves:
            return self.test.finish()
        return decision

    def no_batch(self, progress: Progress) -> bool:
        """Whether a living, undisturbed loader has given no batch for `stats.no_batch_s`."""
        if progress.delivered or progress.all_started_at is None:
            return False
        waited_s = progress.look.load.at_s - progress.all_started_at
        return waited_s >= self._stats.no_batch_s and self.undisturbed()

    def undisturbed(self) -> bool:
        """Whether others have left us the CPUs since the workers started."""
        return self._share_since_start() < self._stats.max_disturbance

    def fields(self, decision: Decision | None) -> dict[str, Any]:
        """What the reading says of the window."""
        blocks = self.test.blocks
        fields: dict[str, Any] = {
            "decision": decision,
            "early": self._hopeless,
            "budget_spent": self._budget_spent,
            "supply_samples_per_s": rounded(self._rate(decision)),
            "blocks": tuple(blocks),
            "disturbed_share": _known_share(blocks, self._share(blocks)),
            "drift_percent": _drift_percent(blocks),
        }
        # One that ended early may never have warmed up; who used the CPUs is known all the same.
        first = self._opened or (self._started if self._hopeless else None)
        if first is None or self._last is None:
            return fields
        start, end = first.load, self._last.load
        window_s = end.at_s - start.at_s
        if self._opened is not None:
            fields["window_s"] = round(window_s, 3)
        if window_s > 0 and start.own_cpu_s is not None and end.own_cpu_s is not None:
            own = (end.own_cpu_s - start.own_cpu_s) / (self._cpu.effective * window_s)
            fields["own_cpu_share"] = round(own, 3)
        if window_s > 0 and start.steal_s is not None and end.steal_s is not None:
            stolen = (end.steal_s - start.steal_s) / (self._cpu.affinity * window_s)
            fields["steal_percent"] = round(100 * stolen, 2)
        return fields

    def new_maker(self) -> BlockMaker:
        """Cuts looks at this loader into blocks."""
        return BlockMaker(
            cpus=self._cpu.effective, block_s=self._stats.block_s,
            cfs_period_s=self._cpu.period_s, workers=self._workers,
            main_pid=self._main_pid,
        )  # fmt: skip

    def _is_warm(self, progress: Progress) -> bool:
        now = progress.look.load.at_s
        if self._warm_at is None and progress.all_finished_one:
            self._warm_at = now
        return self._warm_at is not None and now - self._warm_at >= self._stats.warmup_s

    def _is_hopeless(self, progress: Progress) -> bool:
        if progress.all_started_at is None:
            return False
        return hopeless(
            progress.delivered, self._in_flight,
            progress.look.load.at_s - progress.all_started_at,
            self._share_since_start(),
            self._limit, self._stats.hopeless_ratio,
        )  # fmt: skip

    def _missed_by_far(self, progress: Progress) -> Decision:
        assert progress.all_started_at is not None
        elapsed_s = progress.look.load.at_s - progress.all_started_at
        blocks = self.test.blocks
        most = (progress.delivered + self._in_flight) / elapsed_s
        rate = _rate_of(blocks, progress.look.finished / elapsed_s, high=most)
        disturbed = sum(block.f >= self._stats.max_disturbance for block in blocks)
        return Decision(
            verdict="missed", clause="hopeless", rate=rate, blocks=len(blocks),
            disturbed_blocks=disturbed,
        )  # fmt: skip

    def _rate(self, decision: Decision | None) -> Rate | None:
        if decision is not None:
            return decision.rate
        blocks = self.test.blocks
        return _rate_of(blocks, len(blocks) / sum(block.x for block in blocks)) if blocks else None

    def _share_since_start(self) -> float:
        """Of the whole time, not of blocks: a starved loader finishes no sample, so no block."""
        if self._started is None or self._last is None:
            return 0.0
        return self._maker.disturbance(self._started.load, self._last.load) or 0.0

    @staticmethod
    def _share(blocks: list[Block]) -> float:
        """F: the time-weighted mean disturbance."""
        total_s = sum(block.dt_s for block in blocks)
        return sum(block.f * block.dt_s for block in blocks) / total_s if total_s else 0.0


def _rate_of(blocks: list[Block], value: float, high: float | None = None) -> Rate:
    """A rate without an interval, with all blocks behind it."""
    return Rate(
        value=value, low=None, high=high, unit="samples/s", blocks=len(blocks), discarded=0,
        samples=tuple(1 / block.x for block in blocks),
    )  # fmt: skip


def rounded(rate: Rate | None) -> Rate | None:
    """As a report shows it: a tenth of a sample, four digits where rates are small."""
    if rate is None:
        return None

    def cut(value: float | None) -> float | None:
        return None if value is None else round(value, 1 if value >= 100 else 4)

    return rate.model_copy(
        update={
            "value": cut(rate.value), "low": cut(rate.low), "high": cut(rate.high),
            "samples": tuple(map(cut, rate.samples)),
        }
    )  # fmt: skip


def _known_share(blocks: list[Block], share: float) -> float | None:
    known = any(block.disturbance is not None for block in blocks)
    return round(share, 4) if known else None


def _drift_percent(blocks: list[Block]) -> float | None:
    """How much faster the second half of the window was than the first."""
    half = len(blocks) // 2
    if half < 2:
        return None
    first, second = (
        sum(b.samples for b in part) / sum(b.dt_s for b in part)
        for part in (blocks[:half], blocks[half:])
    )
    return round(100 * (second / first - 1), 1)
