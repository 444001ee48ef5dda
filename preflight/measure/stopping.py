"""When a measurement is finished, and what it came to: the sequential test over blocks.

Pure: blocks in, a Decision out; it neither measures nor reads a clock, and whoever judges turns a
Decision into a finding and its sentences. Nothing is promised for rates within 5 % of the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from statistics import median
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from preflight.job import Stats
from preflight.measure.stats import LOOKS, summary
from preflight.model import Finite, Rate, Record

Verdict = Literal["reached", "missed", "close", "undecided"]
Clause = Literal["all", "kept", "corrected", "hopeless", "few_blocks", "no_blocks"]

# Fewer say too little of their own spread: at 8 the t quantile of a pass is 3.4, at 5 it is 4.8.
FEWEST_BLOCKS = LOOKS[0]

# A pass by corrected blocks needs undisturbed ones that show what bounds the loader (three, so
# that one odd block does not), and they must show the CPUs full: only then does a neighbour's
# share come off our rate one for one, and would come back.
FEWEST_KEPT_FOR_CORRECTED_PASS = 3
SATURATED_OWN_SHARE = 0.95

# What a correction by f may be wrong by, as a share of F. A neighbour costs caches and clock
# speed beside CPU time, so f says too little rather than too much: a pass loses less than a fail.
CORRECTED_PASS_MARGIN = 0.05
CORRECTED_FAIL_MARGIN = 0.15

# One bad stretch must not fail a good node: a second window that ends so much later has to agree.
SECOND_WINDOW_S = 2.0

# Before this the start-up of the workers themselves is most of what has been seen.
HOPELESS_FROM_S = 3.0


class Block(Record):
    """One window of a draining consumer."""

    dt_s: Annotated[Finite, Field(gt=0)]
    samples: int = Field(ge=1, description="finished in the window, which lasts until there is one")
    disturbance: Annotated[Finite, Field(ge=0, le=1)] | None = Field(
        description="share of the CPUs that others took; None where the host hides it"
    )
    own_share: Finite | None = Field(description="own CPU seconds / (effective CPUs x dt_s)")

    @property
    def x(self) -> float:
        """Seconds per sample: what means and intervals are taken of, never the rate."""
        return self.dt_s / self.samples

    @property
    def f(self) -> float:
        """The disturbance, 0 where it is unknown."""
        return self.disturbance or 0.0


class Decision(Record):
    """What a series of blocks came to."""

    verdict: Verdict
    clause: Clause = Field(description="which blocks decided: all, the kept ones, corrected ones")
    rate: Rate | None = Field(
        default=None,
        exclude=True,  # the report has it as the supply itself
        description="of the blocks that decided; low at alpha_pass, high at alpha_fail: a pass "
        "has low >= limit, a fail high < limit; None without blocks",
    )
    blocks: int = Field(description="blocks seen")
    disturbed_blocks: int = Field(description="of these, the ones that others disturbed")


class SequentialTest:
    """Holds a growing series of blocks against one limit.

    A series is looked at after LOOKS blocks and at its end. It has reached the limit when two
    looks in a row say so: one look alone passes 2 % of nodes 15 % under the limit whose blocks
    are strongly correlated. It has missed it when a look says so and then the blocks after that
    look, as a series of their own, say it again.
    """

    def __init__(self, limit_samples_per_s: float, stats: Stats) -> None:
        self.limit = limit_samples_per_s
        self.stats = stats
        self.blocks: list[Block] = []
        self._xs: list[float] = []
        self._fs: list[float] = []
        self._passed_at: int | None = None
        self._second_from: int | None = None

    def add(self, block: Block) -> Decision | None:
        """Take the next block; the verdict, as soon as there is one."""
        self.blocks.append(block)
        self._xs.append(block.x)
        self._fs.append(block.f)
        return self._look(at_end=False)

    def finish(self) -> Decision:
        """The verdict when time is up (`stats.max_s`): the last look, then close or undecided."""
        decision = self._look(at_end=True)
        if decision is not None:
            return decision
        if not self.blocks:
            return self._decision("undecided", "no_blocks", None)
        views = self._views()
        if not views:
            rates = tuple(1 / x for x in self._xs)
            value = len(self._xs) / sum(self._xs)
            return self._decision("undecided", "few_blocks", _rate(value, None, None, rates, 0))
        best = max((view for view in views if view.may_pass), key=lambda view: view.low)
        close = best.low >= self.stats.close_ratio * self.limit
        return self._decision("close" if close else "undecided", best.clause, best.rate())

    def _look(self, at_end: bool) -> Decision | None:
        if at_end or len(self.blocks) in LOOKS:
            views = self._views()
            reached = next((v for v in views if v.may_pass and v.low >= self.limit), None)
            if reached is not None and self._passed_at not in (None, len(self.blocks)):
                return self._decision("reached", reached.clause, reached.rate())
            self._passed_at = None if reached is None else len(self.blocks)
            if self._second_from is None:
                if self._miss(views) is not None:
                    self._second_from = len(self.blocks)
                return None
        return None if self._second_from is None else self._look_again(self._second_from, at_end)

    def _look_again(self, first: int, at_end: bool) -> Decision | None:
        """Look at the second window, which begins with block `first`."""
        second = self.blocks[first:]
        if not at_end and len(second) not in LOOKS:
            return None
        if sum(block.dt_s for block in second) < SECOND_WINDOW_S:
            return None
        view = self._miss(self._views(first))
        return None if view is None else self._decision("missed", view.clause, view.rate())

    def _miss(self, views: Sequence[_View]) -> _View | None:
        return next(
            (v for v in views if v.may_fail and v.high is not None and v.high < self.limit), None
        )

    def _views(self, first: int = 0) -> list[_View]:
        """The clauses that apply from block `first` on; none with fewer than FEWEST_BLOCKS.

        Undisturbed, "all" is the whole rule. Else "all" may only pass (a neighbour cannot raise
        a rate), "kept" decides by the undisturbed blocks, "corrected" takes f off every block.
        """
        xs, fs, stats = self._xs[first:], self._fs[first:], self.stats
        if len(xs) < FEWEST_BLOCKS:
            return []
        if not any(fs):
            return [_view("all", xs, stats)]
        kept = [i for i, f in enumerate(fs) if f < stats.max_disturbance]
        discarded = len(xs) - len(kept)
        views = [_view("all", xs, stats, may_fail=not discarded)]
        if discarded and len(kept) >= FEWEST_BLOCKS:
            views.append(_view("kept", [xs[i] for i in kept], stats, discarded=discarded))
        blocks = self.blocks[first:]
        dts = [block.dt_s for block in blocks]
        share = sum(map(mul, fs, dts)) / sum(dts)
        if share < 1:
            corrected = [x * (1 - f) for x, f in zip(xs, fs, strict=True)]
            saturated = _saturated([blocks[i] for i in kept])
            views.append(_view("corrected", corrected, stats, share=share, may_pass=saturated))
        return views

    def _decision(self, verdict: Verdict, clause: Clause, rate: Rate | None) -> Decision:
        return Decision(
            verdict=verdict,
            clause=clause,
            rate=rate,
            blocks=len(self.blocks),
            disturbed_blocks=sum(f >= self.stats.max_disturbance for f in self._fs),
        )


class _View(NamedTuple):
    """One clause of the rule on one series: what it counts, and what it may decide."""

    clause: Clause
    xs: Sequence[float]
    mean: float
    low: float
    high: float | None
    may_pass: bool
    may_fail: bool
    discarded: int

    def rate(self) -> Rate:
        rates = tuple(1 / x for x in self.xs if x > 0)
        return _rate(1 / self.mean, self.low, self.high, rates, self.discarded)


def _saturated(kept: Sequence[Block]) -> bool:
    """Whether the undisturbed blocks show that nothing but CPU time bounds this loader."""
    if len(kept) < FEWEST_KEPT_FOR_CORRECTED_PASS:
        return False
    return median(block.own_share or 0.0 for block in kept) >= SATURATED_OWN_SHARE


def _view(
    clause: Clause,
    xs: Sequence[float],
    stats: Stats,
    *,
    share: float = 0.0,
    may_pass: bool = True,
    may_fail: bool = True,
    discarded: int = 0,
) -> _View:
    seen = summary(xs)
    upper = seen.mean + seen.half_width(stats.alpha_pass)
    lower = seen.mean - seen.half_width(stats.alpha_fail)
    return _View(
        clause=clause,
        xs=xs,
        mean=seen.mean,
        low=(1 - CORRECTED_PASS_MARGIN * share) / upper,
        high=(1 + CORRECTED_FAIL_MARGIN * share) / lower if lower > 0 else None,
        may_pass=may_pass,
        may_fail=may_fail,
        discarded=discarded,
    )


def _rate(
    value: float, low: float | None, high: float | None, rates: tuple[float, ...], discarded: int
) -> Rate:
    return Rate(
        value=value,
        low=low,
        high=high,
        unit="samples/s",
        blocks=len(rates),
        discarded=discarded,
        samples=rates,
    )


def hopeless(
    delivered: int,
    in_flight: float,
    elapsed_s: float,
    disturbed_share: float,
    limit_samples_per_s: float,
    hopeless_ratio: float,
) -> bool:
    """Whether a loader is so far under the limit that its blocks need not be waited for.

    Everything prefetched counts as delivered, and the time that others took does not count, so
    both are in the node's favour.

    Args:
        delivered: samples handed to the consumer so far.
        in_flight: samples that may be prefetched: workers x prefetch factor x batch size.
        elapsed_s: since the last worker started.
        disturbed_share: the time-weighted mean disturbance F of that time.
        limit_samples_per_s: what is needed.
        hopeless_ratio: the share of the limit under which there is no hope.
    """
    if elapsed_s < HOPELESS_FROM_S:
        return False
    own_time_s = elapsed_s * (1 - disturbed_share)
    return delivered + in_flight < hopeless_ratio * limit_samples_per_s * own_time_s
