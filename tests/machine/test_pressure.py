from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machine.cgroup import read_cgroups
from preflight.machine.pressure import parse_avg10, read_pressure
from tests.fakes import write_machine

SOME = "some avg10={} avg60=0.10 avg300=0.05 total=1\nfull avg10=9.00 avg60=0 avg300=0 total=0\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (SOME.format("12.34"), 12.34),
        ("full avg10=9.00 avg60=0\n", None),
        ("", None),
        (None, None),
        (SOME.format("nan"), None),
    ],
)
def test_avg10(text: str | None, value: float | None) -> None:
    assert parse_avg10(text) == value


def test_the_machine_first_else_our_own_cgroup(tmp_path: Path) -> None:
    root = write_machine(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/own",
            "/proc/self/mountinfo": "30 26 0:1 / /c rw - cgroup2 c rw",
            "/proc/pressure/cpu": SOME.format("1.00"),
            "/c/own/cpu.pressure": SOME.format("2.00"),
            "/c/own/io.pressure": SOME.format("3.00"),
        },
    )
    seen = read_pressure(root, read_cgroups(root))
    assert (seen.cpu, seen.memory, seen.io) == (1.0, None, 3.0)
