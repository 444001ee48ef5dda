from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machine.cgroup import Cgroups
from preflight.machine.container import is_root, outside, runtime
from preflight.machine.root import Root
from tests.fakes import write_machine


@pytest.mark.parametrize(
    ("files", "path", "environ", "expected"),
    [
        ({}, "/", {}, None),
        ({}, "/user.slice/session-3.scope", {}, None),
        ({"/.dockerenv": ""}, "/", {}, "docker"),
        ({"/run/.containerenv": ""}, "/", {}, "podman"),
        ({"/.dockerenv": ""}, "/", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, "/kubepods/burstable/pod1/c0ffee", {}, "kubernetes"),
        ({}, "/docker/c0ffee", {}, "docker"),
        ({}, "/machine.slice/libpod-c0ffee.scope", {}, "podman"),
        ({}, "/system.slice/containerd.service/x", {}, "containerd"),
    ],
)
def test_runtime(
    tmp_path: Path,
    files: dict[str, str],
    path: str,
    environ: dict[str, str],
    expected: str | None,
) -> None:
    root = write_machine(tmp_path, files)
    assert runtime(root, Cgroups(path=path), environ) == expected


class RunsAs(Root):
    user = 0

    def uid(self) -> int:
        return self.user


@pytest.mark.parametrize(
    ("uid_map", "user", "root"),
    [
        ("         0          0 4294967295\n", 0, True),
        ("         0          0 4294967295\n", 1000, False),
        ("0 1000 1\n1 100000 65536\n", 0, False),  # rootless podman
        ("0 65536 65536\n", 0, False),  # hostUsers: false
        (None, 0, True),
    ],
)
def test_root_is_the_hosts_own(tmp_path: Path, uid_map: str | None, user: int, root: bool) -> None:
    write_machine(tmp_path, {} if uid_map is None else {"/proc/self/uid_map": uid_map})
    machine = RunsAs(str(tmp_path))
    object.__setattr__(machine, "user", user)
    assert is_root(machine) is root


@pytest.mark.parametrize("text", ["", "0\n", "x y z\n", "5 6 7\n"])
def test_a_map_that_says_nothing_of_root(text: str) -> None:
    assert outside(text) == 0
