"""Rates of stages from blocks, copies and arrivals; the slowest of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.measure.stage_rates import (
    BLOCKS,
    cut_arrivals,
    limiting,
    rate_of_blocks,
    rate_of_copies,
)
from preflight.measure.stopping import FEWEST_BLOCKS
from preflight.model import Rate, Stage


def rate(value: float, low: float | None = None, high: float | None = None) -> Rate:
    return Rate(
        value=value, low=low, high=high, unit="samples/s", blocks=12, discarded=0, samples=()
    )


def stage(name: str, value: float, low: float | None = None, high: float | None = None) -> Stage:
    return Stage.model_validate({"name": name, "samples_per_s": rate(value, low, high)})


def test_the_value_is_not_the_mean_of_rates() -> None:
    seen = rate_of_blocks([0.001, 0.003], 0.05)
    assert seen.value == 500.0
    assert seen.samples == (1000.0, 333.3)
    assert (seen.low, seen.high) == (None, None)


@pytest.mark.parametrize("blocks", range(1, 20))
def test_an_interval_needs_blocks(blocks: int) -> None:
    seen = rate_of_blocks([0.002] * blocks, 0.05)
    assert (seen.low is not None) == (blocks >= FEWEST_BLOCKS) == (seen.high is not None)
    assert seen.blocks == blocks


def test_a_steady_stage_still_has_the_least_interval() -> None:
    seen = rate_of_blocks([0.002] * 12, 0.05)
    assert seen.low == pytest.approx(500 / 1.03, abs=0.1)
    assert seen.high == pytest.approx(500 / 0.97, abs=0.1)


def test_an_interval_that_reaches_zero_has_no_upper_end() -> None:
    seen = rate_of_blocks([0.001] * 11 + [1.0], 0.05)
    assert seen.low is not None and seen.low < seen.value
    assert seen.high is None


def test_the_interval_holds_the_true_rate_of_noisy_blocks() -> None:
    rng = random.Random(4)
    inside = 0
    for _ in range(300):
        seen = rate_of_blocks([rng.gauss(0.002, 0.0002) for _ in range(12)], 0.05)
        assert seen.low is not None and seen.high is not None
        inside += seen.low <= 500.0 <= seen.high
    assert inside >= 285


def test_a_clock_without_ticks_is_said() -> None:
    with pytest.raises(ValueError, match="no time"):
        rate_of_blocks([0.0, 0.0], 0.05)
    assert rate_of_blocks([0.0, 0.004], 0.05).samples == (250.0,)


def test_copies_become_samples() -> None:
    copies = rate(53.1, 52.0, 54.0).model_copy(update={"unit": "GB/s", "samples": (53.0, 53.2)})
    seen = rate_of_copies(copies, 602_112)
    assert (seen.value, seen.low, seen.high) == (88189.6, 86362.7, 89684.3)
    assert seen.samples == (88023.5, 88355.7)
    assert seen.unit == "samples/s" and seen.blocks == 12
    bare = rate_of_copies(rate(10.0), 1_000_000_000)
    assert (bare.value, bare.low, bare.high) == (10.0, None, None)


@given(
    st.lists(st.floats(1e-4, 10), min_size=1, max_size=300), st.integers(1, 64), st.integers(0, 16)
)
def test_arrivals_are_cut_into_equal_blocks(gaps: list[float], batch: int, workers: int) -> None:
    arrivals = [0.0]
    for gap in gaps:
        arrivals.append(arrivals[-1] + gap)
    xs = cut_arrivals(arrivals, batch, workers)
    assert 1 <= len(xs) <= BLOCKS
    assert len(xs) == min(len(gaps), BLOCKS)
    # The mean is that of one stretch without gaps, which ends with the last batch.
    each = [n for n in range(1, len(gaps) + 1) if _is_cut(arrivals, xs, batch, n)]
    assert each
    assert workers == 0 or any(n <= workers or n % workers == 0 for n in each)


def _is_cut(arrivals: list[float], xs: list[float], batch: int, each: int) -> bool:
    first = len(arrivals) - 1 - len(xs) * each
    if first < 0:
        return False
    stretch_s = arrivals[-1] - arrivals[first]
    return sum(xs) * each * batch == pytest.approx(stretch_s, rel=1e-6, abs=1e-9)


def test_batches_that_come_together_do_not_show_as_noise() -> None:
    """Four workers finish at once, every 0.1 s."""
    arrivals = [0.1 * (n // 4) + 1e-5 * (n % 4) for n in range(271)]
    xs = cut_arrivals(arrivals, 8, 4)
    assert len(xs) == BLOCKS
    assert xs == pytest.approx([0.1 / 32] * BLOCKS)


@pytest.mark.parametrize("arrivals", [[], [3.0]])
def test_one_arrival_has_no_rate(arrivals: list[float]) -> None:
    assert cut_arrivals(arrivals, 8, 2) == []


@pytest.mark.parametrize(
    ("rates", "supply", "name"),
    [
        ({"fetch": 900}, 800, "fetch"),
        ({"fetch": 9800, "decode": 890, "copy": 88000}, 750, "decode"),
        ({"fetch": 9800, "decode": 890, "copy": 600}, 590, "copy"),
        ({"fetch": 1000, "decode": 1000}, 300, "fetch"),  # 500 one after the other
        ({"fetch": 1000, "decode": 1000}, 240, None),
        ({"decode": 484, "transport": 5647}, 14.6, None),  # reads that nobody measured alone
        ({"decode": 484, "transport": 5647}, None, "decode"),
        ({"copy": 600}, 1, "copy"),
        ({}, 100, None),
    ],
)
def test_the_slowest_stage_limits_where_stages_explain_the_supply(
    rates: dict[str, float], supply: float | None, name: str | None
) -> None:
    stages = [stage(one, rate) for one, rate in rates.items()]
    assert limiting(stages, supply) == name
