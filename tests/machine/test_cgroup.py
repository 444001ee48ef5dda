from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machine.cgroup import (
    CONTROLLERS,
    Membership,
    candidates,
    parse_memberships,
    read_cgroups,
)
from preflight.machine.mounts import parse_mountinfo
from tests.fakes import FixtureRoot, write_machine

C = "/sys/fs/cgroup"


def test_memberships() -> None:
    text = "4:cpu,cpuacct:/a:b\n1:name=systemd:/x\n0::/y\n\n3:cut\n2:pids:relative\n"
    assert parse_memberships(text) == [
        Membership(frozenset({"cpu", "cpuacct"}), "/a:b"),
        Membership(frozenset({"name=systemd"}), "/x"),
        Membership(frozenset(), "/y"),
    ]


@pytest.mark.parametrize(
    ("mount_root", "path", "dirs"),
    [
        ("/", "/", [""]),  # private namespace, or the root cgroup of a host
        ("/", "/a/b", ["/a/b", "/a", ""]),
        ("/docker/ID", "/docker/ID", [""]),  # v1 container without a namespace
        ("/docker/ID", "/docker/ID/sub", ["/sub", ""]),
        ("/docker/ID", "/docker/IDLE", [""]),  # not below it, though the text begins alike
        ("/kubepods/pod", "/system.slice/sshd", [""]),  # entered from outside
        ("/", "/../..", [""]),  # above our namespace
        ("/../..", "/../..", [""]),
        ("/../../pod", "/../../pod/own", ["/own", ""]),
        ("/../..", "/", [""]),  # the names in between are hidden
        ("/..", "/own", [""]),
        ("/..", "/../sibling", ["/sibling", ""]),
    ],
)
def test_where_a_cgroup_lies_under_a_mount(mount_root: str, path: str, dirs: list[str]) -> None:
    mounts = parse_mountinfo(f"30 26 0:1 {mount_root} {C} rw - cgroup2 c rw")
    assert candidates(path, mounts) == [tuple(C + below for below in dirs)]


@pytest.mark.parametrize(
    ("name", "controller", "version", "dirs"),
    [
        ("kubernetes_v2_private", "cpu", 2, [C]),
        ("docker_v1", "memory", 1, [f"{C}/memory"]),
        ("docker_v1", "cpuacct", 1, [f"{C}/cpu,cpuacct"]),
        ("hybrid", "memory", 1, [f"{C}/memory/jobs/1", f"{C}/memory/jobs", f"{C}/memory"]),
        ("hybrid", "cpu", 1, [f"{C}/cpu"]),
        (
            "bare_metal",
            "memory",
            2,
            [
                f"{C}/user.slice/user-1000.slice/session-3.scope",
                f"{C}/user.slice/user-1000.slice",
                f"{C}/user.slice",
                C,
            ],
        ),
    ],
)
def test_hierarchies_of(name: str, controller: str, version: int, dirs: list[str]) -> None:
    hierarchy = read_cgroups(FixtureRoot.named(name)).get(controller)
    assert hierarchy is not None
    assert (hierarchy.version, list(hierarchy.dirs)) == (version, dirs)


def test_every_controller_is_found_in_v2_and_in_a_split_v1() -> None:
    for name in ("kubernetes_v2_nested", "docker_v1"):
        assert set(read_cgroups(FixtureRoot.named(name)).by_controller) == set(CONTROLLERS)


def test_a_controller_that_is_only_in_the_unified_half_of_a_hybrid(tmp_path: Path) -> None:
    root = write_machine(
        tmp_path,
        {
            "/proc/self/cgroup": "1:memory:/m\n0::/u\n",
            "/proc/self/mountinfo": f"30 26 0:1 / {C}/memory rw - cgroup c rw,memory\n"
            f"31 26 0:2 / {C}/unified rw - cgroup2 c rw\n",
            f"{C}/memory/m/tasks": "",
            f"{C}/unified/u/pids.max": "7",
        },
    )
    cgroups = read_cgroups(root)
    memory, pids = cgroups.get("memory"), cgroups.get("pids")
    assert cgroups.kind == "hybrid"
    assert memory is not None and memory.version == 1
    assert pids is not None and pids.version == 2
    assert list(pids.read(root, "pids.max", "pids.max")) == [(f"{C}/unified/u", "7")]


def test_systemds_own_hierarchy_beside_v2_is_still_v2(tmp_path: Path) -> None:
    text = (
        f"30 26 0:1 / {C}/systemd rw - cgroup c rw,name=systemd\n31 26 0:2 / {C} rw - cgroup2 c rw"
    )
    root = write_machine(tmp_path, {"/proc/self/mountinfo": text})
    assert read_cgroups(root).kind == "v2"


def test_of_two_mounts_the_one_that_shows_more_ancestors_counts(tmp_path: Path) -> None:
    root = write_machine(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/pod/own\n",
            "/proc/self/mountinfo": f"30 26 0:1 /pod/own {C} rw - cgroup2 c rw\n"
            "31 26 0:1 / /host/cgroup rw - cgroup2 c rw\n",
            f"{C}/cpu.max": "max 100000",
            "/host/cgroup/pod/own/cpu.max": "max 100000",
            "/host/cgroup/pod/cpu.max": "50000 100000",
        },
    )
    hierarchy = read_cgroups(root).get("cpu")
    assert hierarchy is not None
    assert hierarchy.dirs == ("/host/cgroup/pod/own", "/host/cgroup/pod", "/host/cgroup")


def test_a_path_that_is_not_there_leaves_the_mount_point(tmp_path: Path) -> None:
    root = write_machine(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/gone/away\n",
            "/proc/self/mountinfo": f"30 26 0:1 / {C} rw - cgroup2 c rw\n",
            f"{C}/cpu.max": "50000 100000",
        },
    )
    hierarchy = read_cgroups(root).get("cpu")
    assert hierarchy is not None and hierarchy.dirs == (C,)


def test_nothing_to_see(tmp_path: Path) -> None:
    cgroups = read_cgroups(write_machine(tmp_path, {"/proc/self/cgroup": "0::/\n"}))
    assert (cgroups.kind, cgroups.get("cpu")) == ("none", None)
