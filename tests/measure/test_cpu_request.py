"""Which CPUs a loader is bound to where a pod has a request and no quota."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

import pytest

from preflight.machine.root import Root
from preflight.measure.cpu_request import bind_to_request, choose
from tests import making

ALONE = {cpu: frozenset({cpu}) for cpu in range(16)}
PAIRS = {cpu: frozenset({cpu & ~1, cpu | 1}) for cpu in range(16)}  # 0 and 1 share a core


class Machine(Root):
    def affinity(self) -> frozenset[int]:
        return frozenset(range(8))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [1, 3, 7])
def test_so_many_of_the_allowed_the_same_for_every_rank(seed: int, count: int) -> None:
    allowed = frozenset(range(4, 12))
    chosen = choose(allowed, count, ALONE, seed)
    assert len(chosen) == count and chosen <= allowed
    assert choose(allowed, count, ALONE, seed) == chosen


def test_pods_of_one_node_do_not_all_take_the_first_cpus() -> None:
    assert len({choose(frozenset(range(16)), 2, ALONE, seed) for seed in range(30)}) > 5


@pytest.mark.parametrize("seed", range(12))
def test_cores_of_their_own_first_then_their_second_threads(seed: int) -> None:
    def cores(cpus: Set[int]) -> int:
        return len({cpu // 2 for cpu in cpus})

    allowed = frozenset(range(8))
    assert cores(choose(allowed, 4, PAIRS, seed)) == 4
    assert cores(choose(allowed, 3, PAIRS, seed)) == 3
    assert len(choose(allowed, 6, PAIRS, seed)) == 6


def test_bound_facts_are_those_of_the_bound_process(tmp_path: Path) -> None:
    cpu = making.facts().cpu.model_copy(update={"bound_to": 3, "effective": 3.0})
    bound: list[tuple[int, Set[int]]] = []
    now = bind_to_request(
        Machine(str(tmp_path)), cpu, 1, lambda pid, cpus: bound.append((pid, cpus))
    )
    ((pid, cpus),) = bound
    assert pid == 0 and len(cpus) == 3
    assert (now.affinity, now.effective, now.bound_to) == (3, 3.0, 3)


def test_where_binding_is_forbidden_the_facts_are_those_of_all_cpus(tmp_path: Path) -> None:
    def forbidden(pid: int, cpus: Set[int]) -> None:
        raise PermissionError

    cpu = making.facts().cpu.model_copy(update={"bound_to": 3, "effective": 3.0})
    now = bind_to_request(Machine(str(tmp_path)), cpu, 1, forbidden)
    assert (now.affinity, now.effective, now.bound_to) == (8, 8.0, None)


def test_without_a_request_nothing_is_bound() -> None:
    before = os.sched_getaffinity(0)
    cpu = making.facts().cpu
    assert bind_to_request(Root("/"), cpu, 1) is cpu
    assert os.sched_getaffinity(0) == before
