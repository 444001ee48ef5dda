"""What a sample costs, and the rate and the CPUs that follow from it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.measure.model_rate import (
    Costs,
    Spent,
    budget,
    costs,
    cpus_needed,
    seconds_per_sample,
)

START = Spent(
    samples=100, getitem_wall_s=5.0, getitem_cpu_s=1.0, workers_cpu_s=2.0, workers_delay_s=0.5,
    main_cpu_s=0.5,
)  # fmt: skip
END = Spent(
    samples=1100, getitem_wall_s=11.0, getitem_cpu_s=3.25, workers_cpu_s=4.46,
    workers_delay_s=1.5, main_cpu_s=0.6,
)  # fmt: skip

some = st.floats(1e-6, 1.0)
spendings = st.builds(Costs, worker_cpu_s=some, main_cpu_s=st.floats(0, 1), wait_s=st.floats(0, 1))


def test_a_budget_in_milliseconds() -> None:
    seen = budget(START, END)
    assert seen is not None
    assert (seen.getitem_ms, seen.collate_ms, seen.main_ms) == (2.25, 0.21, 0.1)


def test_no_sample_has_no_budget() -> None:
    assert budget(START, replace(END, samples=100)) is None
    assert costs(START, replace(END, samples=100)) is None


def test_what_is_hidden_stays_unknown() -> None:
    hidden = replace(START, workers_cpu_s=None)
    seen = budget(hidden, END)
    assert seen is not None
    assert (seen.getitem_ms, seen.collate_ms, seen.main_ms) == (2.25, None, 0.1)
    assert costs(hidden, END) is None
    assert costs(START, replace(END, main_cpu_s=None)) is None


def test_a_clock_that_lies_a_tick_behind_gives_no_negative_cost() -> None:
    seen = budget(START, replace(END, workers_cpu_s=4.24))
    assert seen is not None and seen.collate_ms == 0.0


def test_waiting_is_what_is_neither_cpu_time_nor_run_delay() -> None:
    spent = costs(START, END)
    assert spent is not None
    assert spent.worker_cpu_s == pytest.approx(2.46e-3)
    assert spent.main_cpu_s == pytest.approx(0.1e-3)
    assert spent.wait_s == pytest.approx((6.0 - 2.25 - 1.0) / 1000)
    hidden = costs(replace(START, workers_delay_s=None), replace(END, workers_delay_s=None))
    assert hidden is not None and hidden.wait_s == pytest.approx((6.0 - 2.25) / 1000)


@given(st.integers(1, 1000), st.floats(0, 10), st.floats(0, 10), st.floats(0, 10), st.floats(0, 10))
def test_a_budget_adds_up(
    samples: int, wall_s: float, getitem_s: float, more_s: float, main_s: float
) -> None:
    end = Spent(
        samples=START.samples + samples, getitem_wall_s=START.getitem_wall_s + wall_s,
        getitem_cpu_s=START.getitem_cpu_s + getitem_s,
        workers_cpu_s=2.0 + getitem_s + more_s, workers_delay_s=0.5, main_cpu_s=0.5 + main_s,
    )  # fmt: skip
    seen, spent = budget(START, end), costs(START, end)
    assert seen is not None and spent is not None
    assert seen.getitem_ms is not None and seen.collate_ms is not None and seen.main_ms is not None
    parts_ms = seen.getitem_ms + seen.collate_ms + seen.main_ms
    assert parts_ms == pytest.approx(1e3 * spent.cpu_s, abs=2e-4)


@pytest.mark.parametrize(
    ("spent", "cpus", "workers", "rate"),
    [
        (Costs(0.002, 0.0005), 2.0, 4, 800.0),  # the CPUs
        (Costs(0.002, 0.0005), 8.0, 1, 500.0),  # one worker
        (Costs(0.002, wait_s=0.008), 2.0, 4, 400.0),  # waiting: more workers help
        (Costs(0.002, wait_s=0.008), 2.0, 40, 1000.0),  # until the CPUs are full
        (Costs(0.0001, 0.001), 16.0, 8, 1000.0),  # the main process is one thread
        (Costs(0.002), 0.5, 8, 250.0),  # a quota
    ],
)
def test_the_narrowest_place_decides(spent: Costs, cpus: float, workers: int, rate: float) -> None:
    assert 1 / seconds_per_sample(spent, cpus, workers) == pytest.approx(rate)


@given(spendings, st.floats(0.1, 64), st.integers(1, 64), st.floats(1.0, 4.0))
def test_more_never_hurts_and_costs_never_help(
    spent: Costs, cpus: float, workers: int, factor: float
) -> None:
    usual = seconds_per_sample(spent, cpus, workers)
    assert usual > 0
    assert seconds_per_sample(spent, cpus * factor, workers) <= usual
    assert seconds_per_sample(spent, cpus, workers + 1) <= usual
    for field in ("worker_cpu_s", "main_cpu_s", "wait_s"):
        dearer = replace(spent, **{field: getattr(spent, field) * factor})
        assert seconds_per_sample(dearer, cpus, workers) >= usual
    # Twice of everything is twice the rate, but for the main process, of which there is one.
    if spent.main_cpu_s < usual / 2:
        doubled = seconds_per_sample(spent, 2 * cpus, 2 * workers)
        assert doubled == pytest.approx(usual / 2)


def test_cpus_needed_as_the_formula_has_it() -> None:
    # (2 x 1000 x 2.5 ms + 2 x 1) / 0.95 = 7.4
    assert cpus_needed(Costs(0.002, 0.0005), 1000.0, ranks=2, host_cpus=1.0) == 8
    assert cpus_needed(Costs(1e-9), 1.0, ranks=1, host_cpus=0.0) == 1


@given(spendings, st.floats(1.0, 1e4), st.integers(1, 16), st.floats(0.0, 4.0))
def test_so_many_cpus_are_enough_and_one_less_is_not(
    spent: Costs, demand: float, ranks: int, host_cpus: float
) -> None:
    cpus = cpus_needed(spent, demand, ranks, host_cpus)
    used = ranks * (demand * spent.cpu_s + host_cpus)
    assert used <= 0.95 * cpus * (1 + 1e-9)
    assert cpus == 1 or used > 0.95 * (cpus - 1) * (1 - 1e-9)
    left_for_loading = cpus / ranks - host_cpus
    bound = Costs(spent.cpu_s)  # nothing but the CPUs
    assert 1 / seconds_per_sample(bound, left_for_loading, workers=10**9) >= demand * (1 - 1e-9)
    assert math.isfinite(cpus)
