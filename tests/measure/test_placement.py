"""Where host memory lies, seen from the GPU."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

import pytest

from preflight.measure.placement import Placement, move_near, near_cpus, ranges
from tests.fakes import FixtureRoot

TWO = {0: frozenset(range(8)), 1: frozenset(range(8, 16))}


@pytest.mark.parametrize(
    ("node", "by_node", "allowed", "near"),
    [
        (1, TWO, range(16), range(8, 16)),
        (1, TWO, range(4, 12), range(8, 12)),
        (1, TWO, range(8), ()),  # all memory is far
        (0, {0: frozenset(range(4))}, range(4), range(4)),
        (None, {0: frozenset(range(4))}, range(4), range(4)),  # one node: nothing is far
        (None, {0: frozenset(range(4)), 1: frozenset()}, range(4), range(4)),  # and CXL memory
        (None, TWO, range(16), None),
        (2, {**TWO, 2: frozenset()}, range(16), None),  # the GPU's own memory
        (9, TWO, range(16), None),
        (0, {}, range(4), None),
    ],
)
def test_near_cpus(node: int | None, by_node: dict, allowed: Set, near: Set | None) -> None:  # type: ignore[type-arg]
    found = near_cpus(node, by_node, frozenset(allowed))
    assert found == (None if near is None else frozenset(near))


class TwoSockets(FixtureRoot):
    """Nodes 0 and 1 of four CPUs each, of which some are allowed."""

    allowed: frozenset[int] = frozenset(range(8))

    def affinity(self) -> frozenset[int]:
        return self.allowed


def two_sockets(folder: Path, allowed: Set[int]) -> TwoSockets:
    for node, cpus in ((0, "0-3"), (1, "4-7")):
        where = folder / f"sys/devices/system/node/node{node}"
        where.mkdir(parents=True)
        (where / "cpulist").write_text(f"{cpus}\n")
    machine = TwoSockets(str(folder))
    object.__setattr__(machine, "allowed", frozenset(allowed))
    return machine


@pytest.mark.parametrize(
    ("allowed", "node", "placement", "bound"),
    [
        (range(8), 1, Placement("near", "0-7"), [range(4, 8)]),
        (range(4, 8), 1, Placement("near", "4-7"), []),
        (range(4), 1, Placement("far", "0-3"), []),
        (range(8), None, Placement("unknown", "0-7"), []),
    ],
)
def test_the_process_moves_near_where_it_may(
    tmp_path: Path, allowed: Set[int], node: int | None, placement: Placement, bound: list[range]
) -> None:
    calls: list[tuple[int, Set[int]]] = []
    machine = two_sockets(tmp_path, set(allowed))
    assert move_near(machine, node, lambda pid, cpus: calls.append((pid, cpus))) == placement
    assert calls == [(0, frozenset(cpus)) for cpus in bound]


def test_a_sandbox_that_forbids_it_leaves_the_question_open(tmp_path: Path) -> None:
    def forbidden(pid: int, cpus: Set[int]) -> None:
        raise PermissionError

    machine = two_sockets(tmp_path, set(range(8)))
    assert move_near(machine, 1, forbidden).host_memory == "unknown"


def test_the_kernel_takes_what_is_bound(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    cpu = min(before)
    for node, cpus in ((0, str(cpu)), (1, "60000")):
        where = tmp_path / f"sys/devices/system/node/node{node}"
        where.mkdir(parents=True)
        (where / "cpulist").write_text(cpus)
    machine = TwoSockets(str(tmp_path))
    object.__setattr__(machine, "allowed", frozenset(before) | {60000})
    try:
        assert move_near(machine, 0).host_memory == "near"
        assert os.sched_getaffinity(0) == {cpu}
    finally:
        os.sched_setaffinity(0, before)


def test_cpus_are_written_as_the_kernel_does() -> None:
    assert ranges(frozenset()) == ""
    assert ranges(frozenset({5})) == "5"
    assert ranges(frozenset({0, 1, 2, 8, 10, 11})) == "0-2,8,10-11"
