"""The search for better settings, on loaders that are made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.measure.search import MOST_TRIALS, Seen, Setting, Space, chosen, next_setting

MOST_WORKERS = 48

Model = Callable[[int], float]


def cpu_bound(cpus: float, cost_s: float) -> Model:
    return lambda w: min(cpus, w) / cost_s


def waiting(cpus: float, cost_s: float, wait_s: float) -> Model:
    """Too many workers cost a little: each one over the need takes half a percent."""
    best = cpus * (wait_s + cost_s) / cost_s

    def rate(w: int) -> float:
        extra = max(0.0, w - 1.5 * best)
        return min(cpus / cost_s, w / (wait_s + cost_s)) * (1 - 0.1 * min(1.0, extra / 100))

    return rate


def search(
    rate: Model,
    cpus: float,
    base: int,
    wall_per_cpu: float | None,
    most: int = MOST_WORKERS,
    cpu_s: float | None = None,
    enough_per_s: float = math.inf,
) -> list[Seen]:
    """What is tried; whoever tries stops at what is enough."""
    space = Space(cpus, lambda setting: setting.num_workers <= most, wall_per_cpu, enough_per_s)
    first, seen = Setting(base, 2), list[Seen]()
    setting: Setting | None = first
    while setting is not None and not (seen and seen[-1].samples_per_s >= enough_per_s):
        assert setting not in [one.setting for one in seen]
        assert setting.num_workers <= most or setting == first
        value = rate(setting.num_workers)
        full = cpu_s is not None and value * cpu_s >= 0.95 * cpus
        seen.append(Seen(setting, value, full, idle=0.0))
        setting = next_setting(seen, space)
    assert len(seen) <= MOST_TRIALS
    return seen


def best_of(rate: Model, most: int = MOST_WORKERS) -> float:
    return max(rate(w) for w in range(1, most + 1))


@settings(max_examples=300, deadline=None)
@given(st.floats(1, 16), st.integers(1, 24), st.booleans())
def test_a_loader_that_computes(cpus: float, base: int, tells: bool) -> None:
    rate = cpu_bound(cpus, 0.003)
    seen = search(rate, cpus, base, 1.0, cpu_s=0.003 if tells else None)
    found = chosen(seen)
    assert found.samples_per_s >= 0.95 * best_of(rate)
    assert found.setting.num_workers <= max(base, math.ceil(cpus))


@settings(max_examples=300, deadline=None)
@given(
    st.floats(1, 8), st.integers(1, 24), st.floats(1.3, 20), st.booleans(),
    st.integers(24, MOST_WORKERS),
)  # fmt: skip
def test_a_loader_that_waits(
    cpus: float, base: int, wall_per_cpu: float, known: bool, most: int
) -> None:
    cost_s = 0.003
    rate = waiting(cpus, cost_s, (wall_per_cpu - 1) * cost_s)
    seen = search(rate, cpus, base, wall_per_cpu if known else None, most, cpu_s=cost_s)
    assert chosen(seen).samples_per_s >= 0.95 * best_of(rate, most)


@settings(max_examples=200, deadline=None)
@given(st.floats(1, 8), st.integers(1, 24), st.integers(1, 40))
def test_a_server_that_is_saturated(cpus: float, base: int, scales_to: int) -> None:
    def rate(w: int) -> float:
        return 10.0 * min(w, scales_to)

    # In the loader as it is, a sample waits the longer the more workers ask.
    seen = search(rate, cpus, base, 30 * max(1.0, base / scales_to))
    assert chosen(seen).samples_per_s >= 0.95 * best_of(rate)
    assert chosen(seen).setting.num_workers <= max(base, 2 * scales_to)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 8), st.integers(1, 32), st.floats(0.01, 0.2))
def test_too_many_workers_that_hurt(cpus: int, base: int, harm: float) -> None:
    def rate(w: int) -> float:
        return min(w, cpus) / (1 + harm * max(0, w - cpus))

    assert chosen(search(rate, cpus, base, 1.0)).samples_per_s >= 0.95 * best_of(rate)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 32))
def test_a_lock_that_many_fight_for(base: int) -> None:
    """It waits, and more workers make it worse; half as many are tried as long as that helps."""

    def rate(w: int) -> float:
        return 100 / (1 + 0.05 * w)

    found = chosen(search(rate, 4.0, base, 10.0)).setting.num_workers
    assert found <= max(1, base // 2)


def test_ten_milliseconds_of_latency_on_two_cpus() -> None:
    """As measured: 135, 279, 484, 545, 573, 549 /s with 2, 4, 8, 12, 16, 24 workers."""
    known = ((1, 68), (2, 135), (4, 279), (8, 484), (12, 545), (16, 573), (24, 549), (64, 500))

    def rate(w: int) -> float:
        (x0, y0), (x1, y1) = next(pair for pair in pairwise(known) if w <= pair[1][0])
        return y0 + (y1 - y0) * (w - x0) / (x1 - x0)

    seen = search(rate, 2.0, 2, 13.3 / 3.3)
    assert seen[1].setting == Setting(4, 2)  # twice as many, whatever comes after
    assert chosen(seen[:5]).samples_per_s >= 0.95 * 573  # there is time for four


@pytest.mark.parametrize(
    ("needed", "workers"), [(150.0, [2, 4]), (450.0, [2, 4, 10]), (5e3, [2, 4])]
)
def test_no_more_workers_than_the_demand_takes(needed: float, workers: list[int]) -> None:
    seen = search(lambda w: 50.0 * w, 2.0, 2, 1000.0, enough_per_s=needed)
    tried = [one.setting.num_workers for one in seen]
    assert tried[: len(workers)] == workers
    assert (seen[-1].samples_per_s >= needed) == (needed < 50 * MOST_WORKERS)


def test_nothing_is_tried_where_nothing_fits() -> None:
    assert len(search(lambda w: w, 4.0, 2, None, most=2)) == 1
    seen = search(lambda w: w, 4.0, 2, 10.0, most=3)
    assert [one.setting.num_workers for one in seen] == [2, 3]


def test_full_cpus_end_the_way_up() -> None:
    seen = [Seen(Setting(2, 2), 100.0, full=True)]
    assert next_setting(seen, Space(2.0, lambda s: True, 10.0)) is None


@pytest.mark.parametrize(("idle", "expected"), [(0.3, 4), (0.05, None), (None, None)])
def test_prefetch_is_raised_where_workers_stand_idle(
    idle: float | None, expected: int | None
) -> None:
    space = Space(2.0, lambda setting: True, 1.0)
    seen = [Seen(Setting(2, 2), 100.0, idle=idle)]
    found = next_setting(seen, space)
    assert found == (None if expected is None else Setting(2, expected))


def test_prefetch_is_raised_on_while_it_helps() -> None:
    space = Space(2.0, lambda setting: True, 1.0)
    seen = [Seen(Setting(2, p), 100.0 * p, idle=0.3) for p in (2, 4)]
    assert next_setting(seen, space) == Setting(2, 8)
    helps = [*seen, Seen(Setting(2, 8), 900.0, idle=0.3)]
    assert next_setting(helps, space) is None
    no_help = [*seen, Seen(Setting(2, 8), 401.0, idle=0.3)]
    assert next_setting(no_help, space) is None
    assert chosen(no_help).setting == Setting(2, 4)


def test_the_fewest_workers_that_are_as_good() -> None:
    seen = [Seen(Setting(w, 2), rate) for w, rate in ((16, 100.0), (8, 97.5), (4, 96.0))]
    assert chosen(seen).setting.num_workers == 8
    assert chosen(seen, 96.0).setting.num_workers == 4  # no more is of use
    assert chosen(seen, 110.0).setting.num_workers == 8
