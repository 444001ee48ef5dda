"""Looks at readers in, blocks, a verdict and a rate out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from preflight.machine.root import Root
from preflight.measure.fetch_window import FetchWindow, rate_of
from preflight.measure.stopping import Block
from tests import making

STATS = making.job().stats


def window(limit: float | None, seconds: float = 20.0) -> FetchWindow:
    # A root without /proc: what others did is hidden.
    return FetchWindow(Root("/nowhere"), making.facts().cpu, STATS, limit, 2, lambda: [], seconds)


def looks(of: FetchWindow, per_s: float, seconds: float, tick_s: float = 0.01) -> None:
    for tick in range(round(seconds / tick_s) + 1):
        of.add(100 + tick * tick_s, int(tick * tick_s * per_s))
        if of.decision is not None:
            return


@pytest.mark.parametrize(("per_s", "verdict"), [(2000, "reached"), (500, "missed")])
def test_a_clear_rate_is_decided_at_once(per_s: float, verdict: str) -> None:
    made = window(1000)
    looks(made, per_s, 20)
    assert made.decision is not None and made.decision.verdict == verdict
    assert len(made.blocks) < 25


def test_without_a_limit_nothing_is_decided() -> None:
    made = window(None)
    looks(made, 500, 5)
    assert made.close(ran_out=False) and made.decision is None


def test_a_folder_that_is_read_through_soon_is_cut_into_shorter_blocks() -> None:
    made = window(1000)
    looks(made, 3000, 0.6)
    assert len(made.blocks) < 8
    assert len(made.close(ran_out=True)) >= 8
    assert made.decision is not None and made.decision.verdict == "reached"


def test_in_under_two_seconds_nothing_is_missed() -> None:
    made = window(1000)
    looks(made, 300, 1.5)
    made.close(ran_out=True)
    assert made.decision is not None and made.decision.verdict == "undecided"


def test_two_short_windows_may_miss() -> None:
    """3.2 s are twelve blocks of a quarter of a second: too few for a second window of eight."""
    made = window(1000)
    looks(made, 300, 3.2)
    assert made.decision is None
    made.close(ran_out=True)
    assert made.decision is not None and made.decision.verdict == "missed"


def test_a_pass_that_was_stopped_is_not_cut_again() -> None:
    made = window(1000)
    looks(made, 3000, 0.6)
    assert len(made.close(ran_out=False)) < 8
    assert made.decision is None


def block(samples: int, **changes: Any) -> Block:
    return Block(dt_s=0.25, samples=samples, disturbance=0.0, own_share=0.5, **changes)


def disturbed(samples: int) -> Block:
    return block(samples).model_copy(update={"disturbance": 0.4})


@pytest.mark.parametrize(
    ("blocks", "value", "discarded"),
    [
        ([block(250)] * 10, 1000.0, 0),
        ([block(250)] * 10 + [disturbed(50)] * 3, 1000.0, 3),
        ([block(250)] * 7, 777.0, 0),  # too few: what was counted in all
        ([], 777.0, 0),
    ],
)
def test_a_rate_is_of_the_undisturbed_blocks(
    blocks: Sequence[Block], value: float, discarded: int
) -> None:
    rate = rate_of(blocks, STATS, 777.0)
    assert (rate.value, rate.discarded) == (pytest.approx(value), discarded)
    assert (rate.low is None) == (len(blocks) < 8)
    if rate.low is not None and rate.high is not None:
        assert rate.low < rate.value < rate.high


def test_seconds_per_sample_are_averaged_and_never_rates() -> None:
    blocks = [block(100), block(300)] * 5
    assert rate_of(blocks, STATS, 1.0).value == pytest.approx(600.0)
