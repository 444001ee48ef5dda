from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machine.cgroup import read_cgroups
from preflight.machine.processes import read_processes
from tests.fakes import write_machine


@pytest.mark.parametrize(
    ("own", "parent", "expected"),
    [
        (("100", "10"), ("200", "195"), (200, 195)),  # 90 left against 5
        (("100", "99"), ("200", "150"), (100, 99)),
        (("max", "10"), ("50", "20"), (50, 20)),
        (("max", "10"), ("max", "20"), (None, 10)),
        (("7", "odd"), ("max", "20"), (7, None)),
    ],
)
def test_the_pids_cgroup_with_the_least_room(
    tmp_path: Path,
    own: tuple[str, str],
    parent: tuple[str, str],
    expected: tuple[int | None, int | None],
) -> None:
    files = {
        "/proc/self/cgroup": "0::/pod/own",
        "/proc/self/mountinfo": "30 26 0:1 / /c rw - cgroup2 c rw",
    }
    for folder, (limit, current) in {"/c/pod/own": own, "/c/pod": parent}.items():
        files |= {f"{folder}/pids.max": limit, f"{folder}/pids.current": current}
    root = write_machine(tmp_path, files)
    seen = read_processes(root, read_cgroups(root))
    assert (seen.pids_max, seen.pids_current) == expected
