import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from preflight.job import Stats
from preflight.measure.stopping import Block, Decision, SequentialTest, hopeless


def _simulation():
    path = Path(__file__).parents[2] / "bench" / "simulate.py"
    spec = importlib.util.spec_from_file_location("bench_simulate", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


simulation = _simulation()

STATS = Stats(
    block_s=0.25, warmup_s=1.0, max_s=20.0, alpha_pass=0.05, alpha_fail=0.001,
    max_disturbance=0.05, close_ratio=0.9, hopeless_ratio=0.5, no_batch_s=20.0, stage_s=1.5,
)  # fmt: skip


def block(rate, f=0.0, own=0.98, dt=0.25):
    """A block at `rate` samples/s (4 samples/s steps at 0.25 s)."""
    return Block(dt_s=dt, samples=round(rate * dt), disturbance=f, own_share=own)


def decide(blocks, limit=1000.0):
    """The decision, at whichever block it falls, and after how many."""
    test = SequentialTest(limit, STATS)
    for b in blocks:
        if (decision := test.add(b)) is not None:
            return decision
    return test.finish()


def steady(rate, n, **kwargs):
    return [block(rate + step, **kwargs) for step in [-20, 0, 20, 0] * (n // 4 + 1)][:n]


def test_a_clear_pass_ends_at_the_second_look():
    decision = decide(steady(1200, 80))
    assert (decision.verdict, decision.clause, decision.blocks) == ("reached", "all", 11)
    rate = decision.rate
    assert rate.value == pytest.approx(11 / sum(1 / s for s in rate.samples))
    assert (rate.blocks, rate.discarded, rate.unit) == (11, 0, "samples/s")
    assert rate.samples[:3] == pytest.approx((1180, 1200, 1220))
    assert rate.low == pytest.approx(rate.value / 1.03) and rate.low >= 1000


def test_the_rate_is_samples_per_second_not_the_mean_of_rates():
    decision = decide([block(500), block(2000)] * 4, limit=10_000)
    assert decision.rate.value == pytest.approx(800)


def test_nothing_is_decided_before_eight_blocks():
    decision = decide(steady(5000, 7))
    assert (decision.verdict, decision.clause) == ("undecided", "few_blocks")
    assert decision.rate.low is None and decision.rate.high is None
    assert decision.rate.value == pytest.approx(5000, rel=0.01)


def test_no_blocks_at_all():
    decision = SequentialTest(1000.0, STATS).finish()
    assert (decision.verdict, decision.clause, decision.rate) == ("undecided", "no_blocks", None)


def test_one_look_is_no_pass():
    # Lucky up to the first look and at time's end seen no more often: not reached.
    test = SequentialTest(1000.0, STATS)
    for b in steady(1200, 8):
        assert test.add(b) is None
    assert test.finish().verdict == "close"


def test_a_fail_needs_a_second_window():
    decision = decide(steady(700, 80))
    assert (decision.verdict, decision.clause, decision.blocks) == ("missed", "all", 16)
    assert decision.rate.blocks == 8 and decision.rate.high < 1000


def test_the_second_window_speaks_for_itself():
    decision = decide(steady(700, 8) + steady(800, 72))
    assert decision.verdict == "missed" and decision.rate.value == pytest.approx(800, rel=0.01)


def test_a_bad_start_does_not_fail_a_node():
    for start in (8, 11, 15):
        decision = decide(steady(700, start) + steady(1080, 80 - start))
        assert decision.verdict != "missed", start


def test_a_second_window_of_seven_blocks_is_too_short():
    assert decide(steady(700, 15)).verdict == "undecided"


def test_the_second_window_lasts_two_seconds():
    decision = decide(steady(700, 200, dt=0.1))
    assert decision.verdict == "missed" and decision.blocks == 8 + 21


def test_close_and_undecided():
    assert decide(steady(980, 80)).verdict == "close"
    near = decide([block(600), block(1400)] * 40)
    assert near.verdict == "undecided" and near.rate.low < 900
    assert near.rate.low < 1000 < near.rate.high


def test_an_interval_that_reaches_below_zero_has_no_upper_end():
    decision = decide([block(40), block(40_000)] * 4)
    assert decision.verdict == "undecided" and decision.rate.high is None


def test_a_rate_reached_beside_a_neighbour_is_reached():
    decision = decide(steady(1200, 80, f=0.4, own=0.5))
    assert (decision.verdict, decision.clause) == ("reached", "all")
    assert (decision.disturbed_blocks, decision.blocks) == (11, 11)


def test_blocks_that_a_neighbour_slowed_are_left_out():
    pattern = [block(1200, own=0.4), block(700, f=0.42, own=0.4)]
    decision = decide(pattern * 40)
    assert (decision.verdict, decision.clause) == ("reached", "kept")
    assert decision.rate.discarded == decision.disturbed_blocks > 0
    assert all(rate == 1200 for rate in decision.rate.samples)


def test_a_neighbour_does_not_fail_a_node():
    decision = decide(steady(700, 80, f=0.4, own=0.58))
    assert decision.verdict == "undecided" and decision.disturbed_blocks == 80


def test_kept_blocks_fail_a_node():
    pattern = [block(700, own=0.4), block(690, f=0.3, own=0.4)]
    decision = decide(pattern * 40)
    assert (decision.verdict, decision.clause) == ("missed", "kept")


def test_corrected_blocks_fail_a_node_that_is_never_left_alone():
    decision = decide([block(400, f=0.4, own=0.58)] * 80)
    assert (decision.verdict, decision.clause) == ("missed", "corrected")
    # 400 / 0.6, taken 0.15 x 0.4 = 6 % higher at the upper end, beside h = 3 %
    assert decision.rate.value == pytest.approx(400 / 0.6)
    assert decision.rate.high == pytest.approx(400 / 0.6 * 1.06 / 0.97)


@pytest.mark.parametrize(
    ("own", "kept", "verdict"),
    [
        (0.98, 3, "reached"),
        (0.98, 2, "undecided"),  # two undisturbed blocks show nothing
        (0.94, 3, "undecided"),  # not bound by the CPUs: a neighbour's share would not come back
        (None, 3, "undecided"),
    ],
)
def test_corrected_blocks_pass_only_a_loader_that_fills_its_cpus(own, kept, verdict):
    disturbed = [block(720, f=0.4, own=0.58)] * 15
    decision = decide([block(1200, own=own)] * kept + disturbed)
    assert decision.verdict == verdict
    if verdict == "reached":
        assert decision.clause == "corrected"
        # x (1 - f) is 1 / 1200 throughout; F = (11 - 3) / 11 x 0.4 at the second look
        assert decision.rate.low == pytest.approx((1 - 0.05 * 0.4 * 8 / 11) * 1200 / 1.03)


def test_slightly_disturbed_blocks_are_kept():
    decision = decide(steady(700, 80, f=0.04))
    assert decision.verdict == "missed" and decision.disturbed_blocks == 0


def test_unknown_disturbance_counts_as_none():
    hidden = [block(b.samples / b.dt_s, f=None) for b in steady(700, 80)]
    assert decide(hidden) == decide(steady(700, 80))


def test_blocks_that_others_took_whole_end_without_a_verdict():
    decision = decide([block(40, f=1.0, own=0.0)] * 80)
    assert decision.verdict == "undecided"


def test_a_block_without_a_sample_is_no_block():
    with pytest.raises(ValidationError):
        Block(dt_s=0.25, samples=0, disturbance=None, own_share=None)


def test_block_and_decision_survive_json():
    b = block(1200, f=None, own=None)
    assert Block.model_validate_json(b.model_dump_json()) == b
    decision = decide(steady(700, 80))
    back = Decision.model_validate_json(decision.model_dump_json())
    assert back == decision.model_copy(update={"rate": None})  # it stands beside the decision


@given(
    st.lists(
        st.tuples(
            st.integers(100, 400),
            st.one_of(st.none(), st.just(0.0), st.floats(0.03, 0.9)),
            st.floats(0, 1),
        ),
        max_size=40,
    )
)
def test_the_verdict_and_the_interval_agree(series):
    decision = decide([block(4 * n, f=f, own=own) for n, f, own in series])
    rate = decision.rate
    if rate is not None and rate.low is not None:
        assert rate.low <= rate.value and (rate.high is None or rate.value <= rate.high)
        assert rate.blocks == len(rate.samples) <= decision.blocks
        assert decision.verdict != "reached" or rate.low >= 1000
    if decision.verdict == "missed":
        assert rate.high < 1000


def test_hopeless_counts_what_is_prefetched():
    assert hopeless(900, 500, 3.0, 0.0, 1000.0, 0.5)
    assert not hopeless(900, 600, 3.0, 0.0, 1000.0, 0.5)


def test_hopeless_waits_three_seconds():
    assert not hopeless(0, 0, 2.9, 0.0, 1000.0, 0.5)


def test_hopeless_does_not_count_the_time_that_others_took():
    assert not hopeless(900, 500, 3.0, 0.1, 1000.0, 0.5)
    assert not hopeless(0, 0, 30.0, 1.0, 1000.0, 0.5)


# The whole table is bench/simulate.py; these are its hardest cells, seeded.
@pytest.mark.parametrize(
    "case",
    [
        simulation.Case("bursty", 0.2, 0.05, False),
        simulation.Case("lag-1 0.5", 0.2, 0.10, False),
        simulation.Case("lag-1 0.8", 0.2, 0.05, False),
        simulation.Case("lag-1 0.8", 0.2, 0.05, True),
        simulation.Case("lag-1 0.5", 0.2, -0.15, False),
        simulation.Case("lag-1 0.8", 0.1, -0.15, False),
        simulation.Case("lag-1 0.5", 0.1, -0.15, True),
        simulation.Case("lag-1 0.8", 0.2, -0.15, False),
    ],
    ids=str,
)
def test_wrong_verdicts_stay_within_their_bounds(case):
    tally = simulation.simulate(case, 1000)
    assert tally.share(simulation.wrong(case)) <= simulation.BOUNDS[case.headroom]


@pytest.mark.parametrize(
    ("case", "verdict", "share", "blocks"),
    [
        (simulation.Case("iid", 0.05, 0.10, False), "reached", 0.99, 11),
        (simulation.Case("iid", 0.05, -0.15, False), "missed", 0.99, 23),
        (simulation.Case("iid", 0.1, 0.10, True), "reached", 0.95, 29),
        (simulation.Case("iid", 0.1, -0.15, True), "missed", 0.9, 54),
    ],
    ids=str,
)
def test_clear_cases_get_their_verdict_soon(case, verdict, share, blocks):
    tally = simulation.simulate(case, 300)
    assert tally.share(verdict) >= share and tally.blocks_to_verdict <= blocks
