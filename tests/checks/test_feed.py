from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.checks.contract import Unavailable, Unit
from preflight.checks.feed import CHECK
from preflight.checks.feed.prediction import predicted
from preflight.checks.feed.reading import FeedReading
from preflight.machine.root import host
from preflight.measure.stopping import Decision
from preflight.model import Rate
from preflight.outcome import Blame, Outcome
from preflight.scratch import Scratch
from tests import making

RATE = {"value": 812.0, "low": 780.0, "high": 850.0}


def limits(**changes: Any) -> Any:
    return making.limits("feed", demand_samples_per_s=1000.0, **changes)


def reading(verdict: str = "reached", percent: float = 98.0, **changes: Any) -> FeedReading:
    rate = Rate(
        value=10 * percent, low=None, high=None, unit="samples/s", blocks=8, discarded=0, samples=()
    )
    seen = FeedReading(
        ranks=1, demand_samples_per_s=1000.0, demand_from="site", limit_samples_per_s=900.0,
        step_s=0.064, batch_size=64, supply_samples_per_s=1200.0,
        predicted_utilisation_percent=100.0, consumed_samples_per_s=rate,
        measured_utilisation_percent=percent, stalled_steps_percent=12.0, longest_stall_s=0.4,
        decision=Decision(verdict=verdict, clause="all", rate=rate, blocks=8, disturbed_blocks=0),
        max_disturbance=0.05, disturbed_share=0.0, seed=1,
    )  # fmt: skip
    return seen.model_copy(update=changes)


def judged(seen: FeedReading, **changes: Any) -> dict[str, Any]:
    return {finding.id: finding for finding in CHECK.judge([seen], limits(**changes))}


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("reached", Outcome.PASS), ("missed", Outcome.FAIL), ("close", Outcome.WARN),
        ("undecided", Outcome.ERROR),
    ],
)  # fmt: skip
def test_verdicts_become_outcomes(verdict: str, outcome: Outcome) -> None:
    finding = judged(reading(verdict, 88.0))["feed.utilisation"]
    assert finding.outcome is outcome
    assert (finding.observed, finding.limit, finding.unit) == (88.0, 90.0, "%")


def test_every_rank_is_judged() -> None:
    findings = CHECK.judge([reading(rank=0), reading("missed", 50.0, rank=1)], limits())
    assert [(f.subject, f.outcome) for f in findings] == [
        ("rank 0", Outcome.PASS), ("rank 1", Outcome.FAIL)
    ]  # fmt: skip


def test_too_few_samples_and_too_uneven_ones_are_told_apart() -> None:
    few = judged(
        reading("missed", 50.0, predicted_utilisation_percent=51.0, supply_samples_per_s=510.0)
    )["feed.utilisation"]
    assert "supplies 510 of 1,000 samples/s" in few.cause and "dataloader" in few.remedy
    uneven = judged(reading("missed", 50.0))["feed.utilisation"]
    assert "0.40 s at the longest" in uneven.cause and "prefetch_factor" in uneven.remedy


def test_neighbours_are_blamed_for_what_they_left_open() -> None:
    finding = judged(reading("undecided", 88.0, disturbed_share=0.4))["feed.utilisation"]
    assert finding.blame is Blame.SHARED and "others used 40%" in finding.cause


def test_a_longest_stall_is_held_against_a_limit_of_the_sites() -> None:
    assert "feed.longest_stall" not in judged(reading())
    assert judged(reading(), max_longest_stall_s=0.5)["feed.longest_stall"].outcome is Outcome.PASS
    missed = judged(reading(), max_longest_stall_s=0.3)["feed.longest_stall"]
    assert missed.outcome is Outcome.FAIL and "0.40 s for one batch" in missed.cause


def test_without_a_demand_it_does_not_apply() -> None:
    assert CHECK.applies(making.facts(), limits()) is None
    why = CHECK.applies(making.facts(), making.limits("feed"))
    assert why is not None and "no demand" in why


@pytest.mark.parametrize("earlier", [{}, {"dataloader": None}, {"dataloader": {"rank": 1}}])
def test_a_loader_that_could_not_be_measured_is_not_started_again(earlier: dict[str, Any]) -> None:
    unit = Unit(
        subject="rank 0", machine=host(), limits=limits(), job=making.job(), facts=making.facts(),
        earlier=earlier, scratch=Scratch("test"),
    )  # fmt: skip
    with pytest.raises(Unavailable, match="see dataloader"):
        CHECK.observe(unit)


def test_the_prediction_is_the_feed_ratio_as_a_percentage() -> None:
    assert predicted(RATE, 1000.0, 8, 0.0) == {
        "predicted_utilisation_percent": 81.2, "predicted_low_percent": 78.0,
        "predicted_high_percent": 85.0,
    }  # fmt: skip
    assert set(predicted(None, 1000.0, 8, 0.0).values()) == {None}


@given(
    supply=st.floats(0.01, 1e6),
    demand=st.floats(0.01, 1e6),
    width=st.floats(0, 0.5),
    ahead=st.integers(1, 64),
    jitter=st.floats(0, 100),
)
def test_a_prediction_lies_in_its_interval_and_in_0_to_100(
    supply: float, demand: float, width: float, ahead: int, jitter: float
) -> None:
    rate = {"value": supply, "low": supply * (1 - width), "high": supply * (1 + width)}
    found = predicted(rate, demand, ahead, jitter)
    low, value, high = (
        found[f"predicted_{name}_percent"] or 0.0 for name in ("low", "utilisation", "high")
    )
    assert 0 <= low <= value <= high <= 100
