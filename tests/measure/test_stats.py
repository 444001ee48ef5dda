import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.measure.stats import LOOKS, TESTS, interval, lag1, summary, t_quantile


# Closed forms for df 1 and 2; the others from printed tables (three decimals).
@pytest.mark.parametrize(
    ("p", "df", "t", "within"),
    [
        (0.05, 1, math.tan(0.45 * math.pi), 1e-9),
        (0.001, 1, math.tan(0.499 * math.pi), 1e-9),
        (0.025, 2, 0.95 * math.sqrt(2 / (4 * 0.025 * 0.975)), 1e-9),
        (0.05 / 9, 2, (1 - 0.1 / 9) * math.sqrt(2 / (4 * 0.05 / 9 * (1 - 0.05 / 9))), 1e-9),
        (0.025, 7, 2.365, 5e-4),
        (0.0005, 7, 5.408, 5e-4),
        (0.005, 10, 3.169, 5e-4),
        (0.001, 20, 3.552, 5e-4),
        (0.05, 30, 1.697, 5e-4),
        (0.0005, 60, 3.460, 5e-4),
        (0.025, 120, 1.980, 5e-4),
    ],
)
def test_t_quantile_of_the_tables(p, df, t, within):
    assert t_quantile(p, df) == pytest.approx(t, abs=within)


@pytest.mark.parametrize("df", [7, 10, 14, 39, 72])
@pytest.mark.parametrize("p", [0.05 / 9, 0.001 / 9, 0.3])
def test_the_density_above_the_quantile_integrates_to_the_tail(p, df):
    t, steps = t_quantile(p, df), 20_000
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def density(x):
        return scale * (1 + x * x / df) ** (-(df + 1) / 2)

    width = t / steps
    inner = sum((4 if i % 2 else 2) * density(i * width) for i in range(1, steps))
    below = width / 3 * (density(0) + inner + density(t))
    assert 0.5 - below == pytest.approx(p, abs=1e-11)


def test_half_the_probability_lies_above_zero():
    assert t_quantile(0.5, 9) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("p", "df"), [(0.05, 0), (0.0, 5), (0.6, 5)])
def test_no_quantile_outside_its_domain(p, df):
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(p, df)


@pytest.mark.parametrize(
    ("xs", "r1"),
    [
        ([1, 2, 3, 4, 5], 0.4),  # deviations -2..2: products 2 + 0 + 0 + 2, squares 10
        ([1, -1, 1, -1, 1, -1], -5 / 6),
        ([5.0, 5.0, 5.0], 0.0),
    ],
)
def test_lag1_by_hand(xs, r1):
    assert lag1(xs) == pytest.approx(r1)


def test_interval_is_the_formula():
    xs = [1.0, 1.1, 1.3, 1.2, 1.0, 0.8, 0.7, 0.9, 1.0, 1.2]
    n, mean = 10, sum(xs) / 10
    sd = math.sqrt(sum((x - mean) ** 2 for x in xs) / (n - 1))
    r = (n * lag1(xs) + 1) / (n - 4)
    r = min(max(r, 0.2), 0.8)
    expected = t_quantile(0.05 / 9, 9) * sd / math.sqrt(n) * math.sqrt((1 + r) / (1 - r))
    assert interval(xs, 0.05) == pytest.approx(expected)


def test_r_is_unbiased_before_it_is_clipped():
    xs = [1, 1, 2, 3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1, 3, 3]
    r = (16 * lag1(xs) + 1) / 12
    assert 0.2 < r < 0.8
    sd = math.sqrt(sum((x - 2) ** 2 for x in xs) / 15)
    assert summary(xs).standard_error == pytest.approx(sd / 4 * math.sqrt((1 + r) / (1 - r)))


def test_alternating_blocks_count_as_correlated_at_0_2():
    xs = [0.9, 1.1] * 6
    sd = math.sqrt(12 * 0.01 / 11)
    assert summary(xs).standard_error == pytest.approx(sd / math.sqrt(12) * math.sqrt(1.2 / 0.8))


def test_a_trend_counts_as_correlated_at_0_8():
    xs = [float(i) for i in range(1, 21)]
    sd = math.sqrt(sum((x - 10.5) ** 2 for x in xs) / 19)
    assert summary(xs).standard_error == pytest.approx(sd / math.sqrt(20) * 3)


def test_a_constant_series_keeps_three_percent():
    assert interval([2.0] * 8, 0.05) == pytest.approx(0.06)


def test_four_values_say_nothing():
    with pytest.raises(ValueError, match="5 are needed"):
        interval([1.0, 1.1, 0.9, 1.0], 0.05)


def test_alpha_is_shared_among_all_looks():
    assert len(LOOKS) + 1 == TESTS == 9


@given(
    st.lists(st.floats(0.5, 2), min_size=5, max_size=30),
    st.floats(0.1, 1000),
)
def test_the_interval_scales_with_its_unit(xs, factor):
    scaled = interval([factor * x for x in xs], 0.05)
    assert scaled == pytest.approx(factor * interval(xs, 0.05), rel=1e-3)


def test_the_interval_covers_an_autocorrelated_mean():
    # 0.05 / 9 a side is promised; without the correction one in ten misses.
    rng, misses = random.Random(7), 0
    for _ in range(1000):
        deviation, xs = rng.gauss(0, 0.2), []
        for _ in range(40):
            xs.append(1 + deviation)
            deviation = 0.6 * deviation + rng.gauss(0, 0.2 * 0.8)
        misses += sum(xs) / 40 + interval(xs, 0.05) < 1
    assert misses <= 20
