"""How surely a short, correlated series fixes its mean: t quantile, lag-1 correlation, interval.

Pure arithmetic on plain numbers, exact with the standard library; it knows neither limits nor
verdicts (`stopping` does) and reads no clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import NamedTuple

# Blocks after which a series is looked at: steps of about a third, so that a clear case ends at
# once and a close one costs few looks. 8 blocks are the fewest whose t quantile is still usable.
LOOKS = (8, 11, 15, 21, 29, 40, 54, 73)
# One more at the end. alpha is shared equally among them (Bonferroni): looking nine times is
# then no likelier to err than looking once.
TESTS = len(LOOKS) + 1

# Blocks correlate even on a quiet machine (queues, in-order delivery), so r is never taken lower;
# 0.8 is the most that was measured (beside a competing loop), and nearer 1 the interval explodes.
LOWEST_LAG1, HIGHEST_LAG1 = 0.2, 0.8

# No half-width is under this share of the mean: what changes more slowly than the series is long
# leaves no trace in its spread, and quiet blocks already vary by 3 to 5 %.
LEAST_HALF_WIDTH = 0.03


@lru_cache(maxsize=1024)
def t_quantile(p_upper_tail: float, df: int) -> float:
    """The t with P(T > t) = p_upper_tail for Student's t with df degrees of freedom.

    Source: Abramowitz and Stegun 26.7.3 and 26.7.4 (the distribution as a finite series in
    theta = atan(t / sqrt(df))), inverted by bisection. Good to 1e-9 for tails of 1e-5 and more.

    Raises:
        ValueError: df under 1, or a tail that is not in (0, 0.5].
    """
    if df < 1 or not 0 < p_upper_tail <= 0.5:
        raise ValueError(f"no t quantile for an upper tail of {p_upper_tail} with df {df}")
    within = 1 - 2 * p_upper_tail
    low, high = 0.0, math.pi / 2
    while low < (theta := (low + high) / 2) < high:
        if _probability_within(theta, df) < within:
            low = theta
        else:
            high = theta
    return math.sqrt(df) * math.tan(low)


def _probability_within(theta: float, df: int) -> float:
    """P(|T| < sqrt(df) tan(theta))."""
    sin, cos = math.sin(theta), math.cos(theta)
    odd = df % 2
    term = cos if odd else 1.0
    total = 0.0
    for k in range(2 + odd, df + 1, 2):
        total += term
        term *= cos * cos * (k - 1) / k
    return 2 / math.pi * (theta + sin * total) if odd else sin * total


class Summary(NamedTuple):
    """The mean of a series and its standard error, correlation allowed for."""

    n: int
    mean: float
    standard_error: float

    def half_width(self, alpha: float) -> float:
        """The one-sided half-width h of the mean's interval, in the mean's unit.

        alpha is the chance of erring on that side over all TESTS looks together.
        """
        t = t_quantile(alpha / TESTS, self.n - 1)
        return max(t * self.standard_error, LEAST_HALF_WIDTH * self.mean)


def summary(xs: Sequence[float]) -> Summary:
    """Mean and corrected standard error of at least five values.

    Source: the variance of the mean of an AR(1) series is (1 + r) / (1 - r) times that of an
    independent one; n values estimate r too low by (1 + 4 r) / n (Marriott and Pope 1954), which
    (n r1 + 1) / (n - 4) undoes.

    Raises:
        ValueError: fewer than five values.
    """
    n = len(xs)
    if n < 5:
        raise ValueError(f"{n} values say nothing of their own correlation; 5 are needed")
    mean, squares, r1 = _moments(xs)
    r = min(max((n * r1 + 1) / (n - 4), LOWEST_LAG1), HIGHEST_LAG1)
    return Summary(n, mean, math.sqrt(squares / (n - 1) / n * (1 + r) / (1 - r)))


def interval(xs: Sequence[float], alpha: float) -> float:
    """The half-width h of the mean of xs: `summary(xs).half_width(alpha)`."""
    return summary(xs).half_width(alpha)


def lag1(xs: Sequence[float]) -> float:
    """Correlation of each value with the next one; 0 for a constant series."""
    return _moments(xs)[2]


def _moments(xs: Sequence[float]) -> tuple[float, float, float]:
    """Mean, sum of squared deviations, lag-1 correlation."""
    mean = math.fsum(xs) / len(xs)
    deviations = [x - mean for x in xs]
    squares = sum(map(mul, deviations, deviations))
    products = sum(map(mul, deviations, deviations[1:]))
    return mean, squares, products / squares if squares else 0.0
