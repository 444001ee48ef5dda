"""Blocks and window: looks at a made-up loader in, decisions out; no clock and no loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from preflight.facts import Load
from preflight.measure.blocks import BlockMaker, Look
from preflight.measure.window import Progress, Window
from tests import making

MAIN, WORKER = 1, 2
STEP_S = 0.25


def look(
    at_s: float, finished: int, *, busy_s: float | None, own_s: float | None, delay_s: float | None
) -> Look:
    return Look(
        finished,
        Load(
            at_s=at_s, busy_s=busy_s, steal_s=0.0, own_cpu_s=own_s,
            run_delay_s={MAIN: 0.0, WORKER: delay_s},
        ),
    )  # fmt: skip


def maker(**changes: float | None) -> BlockMaker:
    usual = {"cpus": 8.0, "block_s": 0.25, "cfs_period_s": None, "workers": 4, "main_pid": MAIN}
    return BlockMaker(**{**usual, **changes})  # type: ignore[arg-type]


def test_the_first_look_only_opens_a_block() -> None:
    blocks = maker()
    assert blocks.add(look(0.0, 0, busy_s=0, own_s=0, delay_s=0)) is None
    block = blocks.add(look(0.25, 100, busy_s=2.0, own_s=1.9, delay_s=0.0))
    assert block is not None
    assert (block.dt_s, block.samples, block.disturbance) == (0.25, 100, 0.0)
    assert block.own_share == pytest.approx(1.9 / (8 * 0.25))


def test_a_block_waits_for_a_sample_of_each_worker() -> None:
    blocks = maker()
    blocks.add(look(0.0, 0, busy_s=0, own_s=0, delay_s=0))
    assert blocks.add(look(0.25, 3, busy_s=0, own_s=0, delay_s=0)) is None
    block = blocks.add(look(0.5, 4, busy_s=0, own_s=0, delay_s=0))
    assert block is not None and block.dt_s == 0.5


def test_under_one_cpu_a_block_spans_three_cfs_periods() -> None:
    blocks = maker(cpus=0.5, cfs_period_s=0.1, workers=1)
    blocks.add(look(0.0, 0, busy_s=0, own_s=0, delay_s=0))
    assert blocks.add(look(0.25, 50, busy_s=0, own_s=0, delay_s=0)) is None
    assert blocks.add(look(0.30, 60, busy_s=0, own_s=0, delay_s=0)) is not None


def test_a_neighbour_shows_as_disturbance() -> None:
    blocks = maker(cpus=2.0, workers=1)
    blocks.add(look(0.0, 0, busy_s=0, own_s=0, delay_s=0))
    block = blocks.add(look(1.0, 50, busy_s=2.0, own_s=1.2, delay_s=0.5))
    assert block is not None
    assert block.disturbance == pytest.approx(0.4)  # 1 - own / (N dt) is the smallest


@pytest.mark.parametrize("hidden", ["busy_s", "own_s", "delay_s"])
def test_what_the_host_hides_is_unknown_not_zero(hidden: str) -> None:
    blocks = maker(workers=1)
    counters = {"busy_s": 0.0, "own_s": 0.0, "delay_s": 0.0, hidden: None}
    blocks.add(look(0.0, 0, **counters))
    block = blocks.add(look(1.0, 50, **counters))
    assert block is not None and block.disturbance is None


@dataclass
class MadeUpLoader:
    """Finishes `per_s` samples a second, evenly; hands over batches of 32 as they are full."""

    per_s: float
    disturbed: float = 0.0
    starts_at_s: float = 0.5
    first_sample_after_s: float = 0.1

    def progress(self) -> Iterator[Progress]:
        for step in range(1, 1000):
            now = step * STEP_S
            ran = max(0.0, now - self.starts_at_s)
            finished = int(ran * self.per_s)
            own = 8 * ran * (1 - self.disturbed)
            busy = 8 * ran if self.disturbed else own
            yield Progress(
                look=look(now, finished, busy_s=busy, own_s=own, delay_s=ran * self.disturbed),
                delivered=finished // 32 * 32,
                all_started_at=self.starts_at_s if ran else None,
                all_finished_one=ran >= self.first_sample_after_s,
            )


def new_window(limit: float) -> Window:
    """Of four workers, each up to two batches of 32 ahead."""
    return Window(
        making.job().stats, making.facts().cpu, limit, MAIN, workers=4, in_flight=4 * 2 * 32
    )


def run(loader: MadeUpLoader, limit: float) -> tuple[Window, object, float]:
    window = new_window(limit)
    for progress in loader.progress():
        decision = window.add(progress)
        if decision is not None or window.no_batch(progress):
            return window, decision, progress.look.load.at_s
    raise AssertionError("the window never closed")


def test_a_fast_loader_is_clear_after_warm_up_and_two_looks() -> None:
    window, decision, at_s = run(MadeUpLoader(per_s=1000), limit=800)
    assert decision.verdict == "reached"
    assert len(window.test.blocks) == 11
    assert at_s == pytest.approx(0.5 + 0.25 + 1.0 + 11 * STEP_S)
    fields = window.fields(decision)
    assert fields["supply_samples_per_s"].value == pytest.approx(1000, rel=0.01)
    assert fields["window_s"] == pytest.approx(2.75)
    assert fields["own_cpu_share"] == pytest.approx(1.0)
    assert fields["early"] is False


def test_a_slow_loader_misses_after_a_second_window() -> None:
    window, decision, _ = run(MadeUpLoader(per_s=600), limit=800)
    assert decision.verdict == "missed"
    assert len(window.test.blocks) >= 16
    assert window.fields(decision)["early"] is False


def test_a_hopeless_loader_fails_early_with_every_prefetched_batch_in_its_favour() -> None:
    """Up to 256 samples are in flight: (60 t + 256) / t falls under 400 after 0.76 s."""
    window, decision, at_s = run(MadeUpLoader(per_s=60), limit=800)
    assert (decision.verdict, decision.clause) == ("missed", "hopeless")
    assert window.fields(decision)["early"] is True
    assert at_s == pytest.approx(0.5 + 3.0)
    assert decision.rate.value == pytest.approx(60, rel=0.02)


def test_a_disturbed_loader_is_not_hopeless() -> None:
    """At 350 of 800 it would be, but others took half of the CPUs."""
    _, decision, _ = run(MadeUpLoader(per_s=350, disturbed=0.5), limit=800)
    assert decision.clause != "hopeless"


def test_a_living_loader_without_a_batch_ends_the_window() -> None:
    window, decision, at_s = run(MadeUpLoader(per_s=0.5), limit=0.0)
    assert decision is None
    assert at_s == pytest.approx(0.5 + 20.0)
    assert window.undisturbed()


@pytest.mark.parametrize("foreign", [0.0, 1.0])
def test_a_loader_that_neighbours_starve_of_all_cpu_is_not_judged_by_what_it_lacks(
    foreign: float,
) -> None:
    """No sample is finished, so there is no block to tell of the neighbours: the clock does."""
    window = new_window(800.0)
    decisions = []
    for step in range(1, 100):
        now = step * STEP_S
        starved = look(now, 0, busy_s=8 * now * foreign, own_s=0.0, delay_s=now * foreign)
        progress = Progress(starved, 0, 0.1, False)
        decisions.append(window.add(progress))
        if window.no_batch(progress):
            break
    if foreign:
        assert decisions == [None] * 99 and not window.undisturbed()
    else:
        assert window.no_batch(progress), "it may as well hang: that is no rate"


def test_what_may_be_read_ends_a_window_with_what_is_known_by_then() -> None:
    window = new_window(800.0)
    for number, progress in enumerate(MadeUpLoader(per_s=1000).progress()):
        decision = window.add(replace(progress, budget_spent=number == 16))
        if decision is not None:
            break
    assert number == 16 and len(window.test.blocks) == 10
    assert (decision.verdict, window.fields(decision)["budget_spent"]) == ("reached", True)


def test_nothing_read_before_the_window_opened_is_undecided() -> None:
    window = new_window(800.0)
    progress = next(MadeUpLoader(per_s=1000).progress())
    decision = window.add(replace(progress, budget_spent=True))
    assert decision is not None and decision.verdict == "undecided"


def test_max_s_ends_a_window_that_stays_undecided() -> None:
    window, decision, _ = run(MadeUpLoader(per_s=790), limit=800)
    assert decision.verdict == "close"
    assert window.fields(decision)["window_s"] == pytest.approx(20.0)


def test_a_loader_that_gets_slower_shows_its_drift() -> None:
    window = new_window(10_000.0)
    finished = 0
    for step in range(1, 20):
        finished += 400 if step < 12 else 200
        window.add(
            Progress(look(step * STEP_S, finished, busy_s=0, own_s=0, delay_s=0), 0, None, True)
        )
    assert window.fields(None)["drift_percent"] < -20


def test_a_loader_that_stands_still_is_not_told_as_slow() -> None:
    """It may hang, and torch's time limit says so; one that goes on is judged by what it lacks."""
    window = new_window(800.0)
    for step in range(1, 120):
        now = step * STEP_S
        still = look(now, min(500, int(now * 1000)), busy_s=0.0, own_s=0.0, delay_s=0.0)
        assert window.add(Progress(still, 480, 0.1, True)) is None
    goes_on = look(now + STEP_S, 501, busy_s=0.0, own_s=0.0, delay_s=0.0)
    decision = window.add(Progress(goes_on, 480, 0.1, True))
    assert decision is not None and (decision.verdict, decision.clause) == ("missed", "hopeless")
