from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machine.cgroup import Cgroups
from preflight.machine.container import runtime
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
