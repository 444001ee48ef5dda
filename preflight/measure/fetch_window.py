"""From counts of files read to blocks, a verdict and a rate: the readers' side of a window.

Looks are taken often and cheaply; every `stats.block_s` who used the CPUs is read, too. A folder
that is read through before eight such blocks are over is cut into shorter ones afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from preflight.facts import Cpu, Load
from preflight.job import Stats
from preflight.machine.load import LoadMeter
from preflight.machine.root import Root
from preflight.measure.blocks import BlockMaker, Look
from preflight.measure.stats import LOOKS, summary
from preflight.measure.stopping import FEWEST_BLOCKS, Block, Decision, SequentialTest
from preflight.model import Rate

_SHORT_BLOCKS = 24  # of a pass that was over too soon: two windows of eight, and some
_LEAST_BLOCK_S = 0.02  # two looks: shorter ones show the looks' own unevenness


class FetchWindow:
    """Takes looks at one pass of the readers."""

    def __init__(
        self,
        machine: Root,
        cpu: Cpu,
        stats: Stats,
        limit_samples_per_s: float | None,
        readers: int,
        pids: Callable[[], Iterable[int]],
        seconds: float,
    ) -> None:
        self.blocks: list[Block] = []
        self.decision: Decision | None = None
        self.disturbed_share: float | None = None
        """F of the pass once it is closed; None where the host hides it, or it was too short."""
        self._stats, self._limit, self._cpu, self._readers = (
            stats,
            limit_samples_per_s,
            cpu,
            readers,
        )
        self._meter = LoadMeter(machine, machine.affinity(), pids)
        self._test = self._new_test()
        # A short pass without a verdict still has its interval.
        self._block_s = min(stats.block_s, seconds / LOOKS[1])
        self._maker = self._new_maker(self._block_s)
        self._looks: list[tuple[float, int]] = []
        self._next_at = 0.0

    def add(self, now_s: float, finished: int) -> bool:
        """Take a look; whether it was one of those that end a block."""
        self._looks.append((now_s, finished))
        if now_s < self._next_at:
            return False
        self._next_at = now_s + self._block_s
        block = self._maker.add(Look(finished, self._meter.read(now_s)))
        if block is not None:
            self.blocks.append(block)
            if self._test is not None:
                self.decision = self._test.add(block)
        return True

    def close(self, ran_out: bool) -> list[Block]:
        """The pass is over; the blocks, and with a limit the decision that they come to."""
        self.disturbed_share = _share(self.blocks)
        if self.decision is not None:
            return self.blocks
        decision = self._finished()
        open_still = decision is None or decision.verdict in ("close", "undecided")
        # Short blocks hide a disturbance: in under two seconds they cannot fail anything.
        quiet = len(self.blocks) < FEWEST_BLOCKS or not any(block.f for block in self.blocks)
        if ran_out and open_still and quiet and self._looks:
            self._cut_again()
        self.decision = self.decision or self._finished()
        return self.blocks

    def _cut_again(self) -> None:
        """Shorter blocks, in which nobody can say what others took: CPU counters tick at 10 ms."""
        span_s = self._looks[-1][0] - self._looks[0][0]
        maker = self._new_maker(max(_LEAST_BLOCK_S, span_s / _SHORT_BLOCKS))
        looks = (Look(finished, _unknown(at_s)) for at_s, finished in self._looks)
        blocks = [block for block in map(maker.add, looks) if block is not None]
        if len(blocks) <= len(self.blocks):
            return
        self.blocks, self._test = blocks, self._new_test()
        if self._test is not None:
            for block in blocks:
                self.decision = self._test.add(block) or self.decision

    def _finished(self) -> Decision | None:
        enough = self._test is not None and len(self.blocks) >= FEWEST_BLOCKS
        return self._test.finish() if self._test is not None and enough else None

    def _new_test(self) -> SequentialTest | None:
        return None if self._limit is None else SequentialTest(self._limit, self._stats)

    def _new_maker(self, block_s: float) -> BlockMaker:
        return BlockMaker(
            cpus=self._cpu.effective, block_s=block_s, cfs_period_s=self._cpu.period_s,
            workers=self._readers, main_pid=-1,
        )  # fmt: skip


def rate_of(blocks: Sequence[Block], stats: Stats, counted_per_s: float) -> Rate:
    """1 / mean(x) of the blocks with its interval, h as the stopping rule has it.

    Of the undisturbed blocks where there are enough. With too few of any it is `counted_per_s`,
    without an interval.
    """
    kept = [block for block in blocks if block.f < stats.max_disturbance]
    counted = kept if len(kept) >= FEWEST_BLOCKS else list(blocks)
    discarded = len(blocks) - len(counted)
    rates = tuple(1 / block.x for block in counted)
    if len(counted) < FEWEST_BLOCKS:
        return _rate(counted_per_s, None, None, rates, discarded)
    seen = summary([block.x for block in counted])
    least = seen.mean - seen.half_width(stats.alpha_fail)
    low = 1 / (seen.mean + seen.half_width(stats.alpha_pass))
    return _rate(1 / seen.mean, low, 1 / least if least > 0 else None, rates, discarded)


def _rate(
    value: float, low: float | None, high: float | None, rates: tuple[float, ...], discarded: int
) -> Rate:
    return Rate(
        value=value, low=low, high=high, unit="samples/s", blocks=len(rates),
        discarded=discarded, samples=rates,
    )  # fmt: skip


def _share(blocks: Sequence[Block]) -> float | None:
    """The time-weighted mean disturbance."""
    known = [block for block in blocks if block.disturbance is not None]
    total_s = sum(block.dt_s for block in known)
    return sum(block.f * block.dt_s for block in known) / total_s if known else None


def _unknown(at_s: float) -> Load:
    return Load(at_s=at_s, busy_s=None, steal_s=None, own_cpu_s=None, run_delay_s={})
