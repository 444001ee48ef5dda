from __future__ import annotations

import pytest

from preflight.machine.kernel_text import cpu_list, gib, integer, keyed, number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12\n", 12),
        ("-1", -1),
        ("max", None),
        ("", None),
        (None, None),
        ("9" * 30, None),
        ("9" * 5000, None),
        ("1.5", None),
    ],
)
def test_integer(text: str | None, value: int | None) -> None:
    assert integer(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1.5", 1.5), ("nan", None), ("inf", None), ("1e999", None), ("x", None)]
)
def test_number(text: str, value: float | None) -> None:
    assert number(text) == value


def test_keyed_takes_memory_stat_and_meminfo_alike() -> None:
    text = "MemTotal:    100 kB\nactive_file 7\n\ncut\nodd x\nbelow -3\n"
    assert keyed(text) == {"MemTotal": 100, "active_file": 7}


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("5", {5}),
        ("", set()),
        (None, set()),
        ("3-1,x,-2,1-", {1}),
        ("0-70000", set()),
    ],
)
def test_cpu_list(text: str | None, cpus: set[int]) -> None:
    assert cpu_list(text) == cpus


def test_gib() -> None:
    assert gib(3 << 29) == 1.5
