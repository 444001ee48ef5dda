from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machine.cgroup import read_cgroups
from preflight.machine.memory import headroom, oom_kills, read_memory
from preflight.machine.root import Ram, Root
from tests.fakes import FixtureRoot, write_machine

GIB = 1 << 30
V1 = {
    "/proc/self/cgroup": "4:memory:/",
    "/proc/self/mountinfo": "30 26 0:1 / /m rw - cgroup c rw,memory",
    "/proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n",
    "/m/memory.usage_in_bytes": str(GIB),
}


def test_headroom_counts_what_is_given_back_and_not_what_must_be_written() -> None:
    stat = {"active_file": 100, "inactive_file": 200, "slab_reclaimable": 40}
    stat |= {"file_dirty": 30, "file_writeback": 10, "anon": 999}
    assert headroom(1000, 900, stat, 2) == 400


def test_headroom_of_v1_takes_the_totals_and_no_slab() -> None:
    stat = {"total_active_file": 100, "total_inactive_file": 200, "active_file": 7}
    stat |= {"total_dirty": 30, "total_writeback": 10, "slab_reclaimable": 999}
    assert headroom(1000, 900, stat, 1) == 360


def test_headroom_stays_within_the_limit() -> None:
    assert headroom(1000, 2000, {}, 2) == 0
    assert headroom(1000, 10, {"inactive_file": 500}, 2) == 1000


@pytest.mark.parametrize("limit", [9223372036854771712, 17 * GIB, 2**63])
def test_a_v1_limit_above_the_machine_is_none(tmp_path: Path, limit: int) -> None:
    root = write_machine(tmp_path, V1 | {"/m/memory.limit_in_bytes": str(limit)})
    memory = read_memory(root, read_cgroups(root))
    assert (memory.limit_gib, memory.headroom_gib, memory.from_) == (None, 8.0, "MemAvailable")


def test_a_machine_that_is_full_binds_before_a_wide_limit(tmp_path: Path) -> None:
    root = write_machine(tmp_path, V1 | {"/m/memory.limit_in_bytes": str(12 * GIB)})
    memory = read_memory(root, read_cgroups(root))
    assert (memory.limit_gib, memory.headroom_gib, memory.from_) == (12.0, 8.0, "MemAvailable")


def test_a_limit_whose_usage_is_hidden_still_binds(tmp_path: Path) -> None:
    files = {name: text for name, text in V1.items() if "usage" not in name}
    root = write_machine(tmp_path, files | {"/m/memory.limit_in_bytes": str(2 * GIB)})
    memory = read_memory(root, read_cgroups(root))
    assert memory.headroom_gib == 2.0


class SmallRam(Root):
    def ram(self) -> Ram:
        return Ram(total=4 * GIB, free=3 * GIB)


def test_without_meminfo_the_system_call_answers(tmp_path: Path) -> None:
    memory = read_memory(SmallRam(str(tmp_path)), read_cgroups(Root(str(tmp_path))))
    assert (memory.total_gib, memory.available_gib, memory.headroom_gib) == (4.0, 3.0, 3.0)


@pytest.mark.parametrize(
    ("name", "kills"),
    [("docker_v2_quota", 1), ("docker_v1", 2), ("page_cache_full", 0), ("hybrid", 0)],
)
def test_oom_kills(name: str, kills: int) -> None:
    assert oom_kills(FixtureRoot.named(name)) == kills


def test_oom_kills_that_the_kernel_does_not_tell(tmp_path: Path) -> None:
    assert oom_kills(Root(str(tmp_path))) is None
    root = write_machine(tmp_path, V1 | {"/m/memory.oom_control": "under_oom 0\n"})
    assert oom_kills(root) is None
