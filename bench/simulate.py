"""How often is the rule of `preflight.measure.stopping` wrong? Simulated, against fixed bounds.

    python bench/simulate.py [--runs N]

Runs the real SequentialTest on series of known mean: `bound` is the largest share of wrong
verdicts allowed (a fail above the limit, a pass under it). Exits 1 when a bound is broken. The
truth of a series is the mean of x, seconds per sample, without the neighbour. `close` and `open`
runs got no verdict in max_s; `blocks` is the median number of blocks to one.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import repeat
from statistics import median
from typing import NamedTuple

from preflight.job import Stats
from preflight.measure.stopping import Block, SequentialTest

STATS = Stats(
    block_s=0.25, warmup_s=1.0, max_s=20.0, alpha_pass=0.05, alpha_fail=0.001,
    max_disturbance=0.05, close_ratio=0.9, hopeless_ratio=0.5, no_batch_s=20.0, stage_s=1.5,
)  # fmt: skip
TRUE_RATE = 1000.0  # samples/s: x is 1 ms on average
BLOCKS = int(STATS.max_s / STATS.block_s)

# headroom of the true rate over the limit -> largest share of wrong verdicts
BOUNDS = {0.05: 0.005, 0.10: 0.001, 0.15: 0.0001, -0.15: 0.01}
CVS = (0.05, 0.1, 0.2)

Series = Callable[[random.Random, float], Iterator[float]]


def iid(rng: random.Random, cv: float) -> Iterator[float]:
    """Independent, normal."""
    while True:
        yield rng.gauss(1, cv)


def lognormal(rng: random.Random, cv: float) -> Iterator[float]:
    """Independent, with a long slow tail."""
    sigma = math.sqrt(math.log1p(cv * cv))
    while True:
        yield rng.lognormvariate(-sigma * sigma / 2, sigma)


def bursty(rng: random.Random, cv: float) -> Iterator[float]:
    """Slow stretches of three blocks on average, a sixth of the time: 3/4 of the variance."""
    share, leave = 1 / 6, 1 / 3
    enter = leave * share / (1 - share)
    step = cv * math.sqrt(0.75 / (share * (1 - share)))
    slow = rng.random() < share
    while True:
        yield 1 + step * (slow - share) + rng.gauss(0, cv / 2)
        slow = rng.random() >= leave if slow else rng.random() < enter


def correlated(lag1: float) -> Series:
    """Normal with this correlation from each block to the next (AR(1))."""

    def series(rng: random.Random, cv: float) -> Iterator[float]:
        deviation = rng.gauss(0, cv)
        while True:
            yield 1 + deviation
            deviation = lag1 * deviation + rng.gauss(0, cv * math.sqrt(1 - lag1 * lag1))

    return series


SERIES: dict[str, Series] = {
    "iid": iid,
    "lognormal": lognormal,
    "bursty": bursty,
    "lag-1 0.5": correlated(0.5),
    "lag-1 0.8": correlated(0.8),
}


SEEN_F_ERROR = 0.02  # 10 ms ticks in a block of 0.25 s, two CPUs
BESIDE_A_NEIGHBOUR = (("iid", 0.1), ("lag-1 0.5", 0.1), ("lag-1 0.8", 0.2))


def neighbour(rng: random.Random) -> Iterator[float]:
    """Somebody takes 30 to 50 % of the CPUs, half of the time, for two seconds on average."""
    on = rng.random() < 0.5
    while True:
        f = rng.uniform(0.3, 0.5) if on else 0.0
        for _ in range(1 + int(rng.expovariate(STATS.block_s / 2.0))):
            yield f
        on = not on


class Case(NamedTuple):
    """One cell of the table."""

    series: str
    cv: float
    headroom: float
    disturbed: bool


class Tally(NamedTuple):
    """What the runs of a case came to."""

    verdicts: Counter[str]
    blocks_to_verdict: float | None

    def share(self, verdict: str) -> float:
        """Share of the runs that ended so."""
        return self.verdicts[verdict] / self.verdicts.total()


def cases() -> list[Case]:
    """All cells of the table."""
    quiet = [(series, cv, False) for series in SERIES for cv in CVS]
    beside = [(series, cv, True) for series, cv in BESIDE_A_NEIGHBOUR]
    return [
        Case(series, cv, headroom, disturbed)
        for series, cv, disturbed in quiet + beside
        for headroom in BOUNDS
    ]


def simulate(case: Case, runs: int) -> Tally:
    """Run one case; the same case and number always give the same tally."""
    rng = random.Random(repr(case))
    verdicts: Counter[str] = Counter()
    lengths = []
    for _ in range(runs):
        verdict, blocks = _one_run(case, rng)
        verdicts[verdict] += 1
        if verdict in ("reached", "missed"):
            lengths.append(blocks)
    return Tally(verdicts, median(lengths) if lengths else None)


def _one_run(case: Case, rng: random.Random) -> tuple[str, int]:
    test = SequentialTest(TRUE_RATE / (1 + case.headroom), STATS)
    xs = SERIES[case.series](rng, case.cv)
    fs = neighbour(rng) if case.disturbed else repeat(0.0)
    for _ in range(BLOCKS):
        x, f = max(next(xs), 0.05), next(fs)
        seen = max(f + rng.gauss(0, SEEN_F_ERROR), 0.0) if f else 0.0
        decision = test.add(_block(round(1000 * x / (1 - f)), round(100 * seen)))
        if decision is not None:
            return decision.verdict, decision.blocks
    return test.finish().verdict, BLOCKS


@cache
def _block(x_us: int, f_percent: int) -> Block:
    """A block of a loader that fills the CPUs which its neighbour leaves it."""
    samples, f = 250, f_percent / 100
    return Block(
        dt_s=samples * x_us / 1e6, samples=samples, disturbance=f, own_share=max(0.98 - f, 0.0)
    )


def wrong(case: Case) -> str:
    """The verdict that must not be given."""
    return "missed" if case.headroom > 0 else "reached"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000, help="runs of each case")
    runs = parser.parse_args().runs
    todo = cases()
    print("series     CV   neighbour  true  wrong%  bound%  reached% missed% close% open% blocks")
    broken = 0
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for case, tally in zip(todo, pool.map(simulate, todo, [runs] * len(todo)), strict=True):
            share, bound = tally.share(wrong(case)), BOUNDS[case.headroom]
            broken += share > bound
            print(
                f"{case.series:10} {case.cv:.2f} {'yes' if case.disturbed else 'no':9}"
                f" {case.headroom:+5.0%} {100 * share:7.2f} {100 * bound:7.2f}"
                f" {100 * tally.share('reached'):9.1f} {100 * tally.share('missed'):7.1f}"
                f" {100 * tally.share('close'):6.1f} {100 * tally.share('undecided'):5.1f}"
                f" {tally.blocks_to_verdict or 0:6.0f}{'  BROKEN' if share > bound else ''}",
                flush=True,
            )
    print(f"{len(todo)} cases of {runs} runs, {broken} bounds broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
