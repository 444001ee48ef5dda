from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machine.cgroup import Cgroups, read_cgroups
from preflight.machine.cpu import (
    core_mates,
    parse_quota,
    parse_request,
    parse_throttling,
    read_cpu,
    read_request,
    steal_percent,
    throttling,
    weight_from_shares,
)
from preflight.machine.root import Root
from tests.fakes import FixtureRoot, write_machine


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("150000 100000\n", (1.5, 0.1)),
        ("max 100000", None),
        ("-1 100000", None),
        ("25000 50000", (0.5, 0.05)),
        ("200000", (2.0, 0.1)),  # the period is the default one
        ("0 100000", None),
        ("100000 0", None),
        ("100000 -5", None),
        ("", None),
        ("x y", None),
    ],
)
def test_quota(text: str, quota: tuple[float, float] | None) -> None:
    assert parse_quota(text) == quota


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("2", 2.0), ("0.5", 0.5), (".5", 0.5), ("500m", 0.5), (" 1500m ", 1.5), ("0", None)]
    + [(bad, None) for bad in ("", "two", "-1", "1e3", "500 m", "4Ki", "m", ".", "nan", "٣")],
)
def test_request(text: str, cpus: float | None) -> None:
    assert parse_request(text) == cpus
    assert parse_request(None) is None


@pytest.mark.parametrize(
    ("text", "cpus", "why"),
    [
        (None, None, None),
        (" ", None, None),
        ("0", None, None),  # a container without a request
        ("0m", None, None),
        ("8", 8.0, None),
        ("8500m", None, "this node has 8 CPUs"),
        ("2500", None, "divisor: 1m"),
        ("two", None, "write CPUs, such as 2, 0.5 or 2500m"),
        ("m", None, "write CPUs"),
        ("9" * 40, None, "write CPUs"),
    ],
)
def test_a_request_that_is_not_counted_says_why(
    text: str | None, cpus: float | None, why: str | None
) -> None:
    request = read_request(text, online=8)
    assert request.cpus == cpus
    assert (request.ignored is None) == (why is None)
    if why and request.ignored:
        assert why in request.ignored and "\n" not in request.ignored
        assert len(request.ignored) < 150


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(2, 1), (1024, 100), (262144, 10000), (0, 1), (1 << 40, 10000), (2048, 174), (102, 17)],
)
def test_weight_from_shares(shares: int, weight: int) -> None:
    assert weight_from_shares(shares) == weight


def test_throttling_of_both_versions() -> None:
    v2 = parse_throttling("nr_periods 400\nnr_throttled 120\nthrottled_usec 3500000\n")
    v1 = parse_throttling("nr_periods 400\nnr_throttled 120\nthrottled_time 3500000000\n")
    assert v1 == v2
    assert v2 is not None
    assert (v2.nr_periods, v2.nr_throttled, v2.throttled_s) == (400, 120, 3.5)


@pytest.mark.parametrize("text", [None, "", "usage_usec 5\n", "throttled_usec 5\n", "nr_periods 5"])
def test_throttling_where_there_is_none(text: str | None) -> None:
    assert parse_throttling(text) is None


@pytest.mark.parametrize(
    ("name", "periods"),
    [
        ("docker_v2_quota", 400),
        ("docker_v1", 200),
        ("kubernetes_v2_nested", 1000),  # the pod's, whose quota is the lower one
        ("kubernetes_request_only", 0),  # no quota: our own
    ],
)
def test_throttling_is_that_of_the_quota_that_binds(name: str, periods: int) -> None:
    counters = throttling(FixtureRoot.named(name))
    assert counters is not None and counters.nr_periods == periods


def test_throttling_can_be_read_again(tmp_path: Path) -> None:
    files = {
        "/proc/self/cgroup": "0::/",
        "/proc/self/mountinfo": "30 26 0:1 / /c rw - cgroup2 c rw",
        "/c/cpu.max": "50000 100000",
        "/c/cpu.stat": "nr_periods 1\nnr_throttled 0\nthrottled_usec 0\n",
    }
    root = write_machine(tmp_path, files)
    before = throttling(root)
    write_machine(tmp_path, {"/c/cpu.stat": "nr_periods 9\nnr_throttled 5\nthrottled_usec 70000\n"})
    after = throttling(root)
    assert before is not None and after is not None
    assert (before.nr_periods, after.nr_periods) == (1, 9)
    assert after.throttled_s - before.throttled_s == pytest.approx(0.07)


def test_no_cgroup_no_throttling(tmp_path: Path) -> None:
    assert throttling(Root(str(tmp_path))) is None


def test_steal() -> None:
    assert steal_percent("cpu  10 0 10 50 10 0 0 20 5 5\ncpu0 1") == 20.0
    assert steal_percent("cpu  0 0 0 0 0 0 0 0 0 0\n") is None
    assert steal_percent("cpu  1 2 3\n") is None
    assert steal_percent("cpu0 10 0 10 50 10 0 0 20\n") is None
    assert steal_percent(None) is None


class TwoCpus(Root):
    def affinity(self) -> frozenset[int]:
        return frozenset({4, 5})


def test_online_cpus_by_sysfs_by_stat_and_by_affinity(tmp_path: Path) -> None:
    root = TwoCpus(str(tmp_path))

    def seen() -> tuple[int, str]:
        cpu = read_cpu(root, Cgroups(), {})
        return cpu.online, cpu.from_

    assert seen() == (2, "online CPUs")
    write_machine(tmp_path, {"/proc/stat": "cpu  1 1\ncpu0 1\ncpu1 1\ncpu2 1\nintr 5\n"})
    assert seen() == (3, "affinity")
    write_machine(tmp_path, {"/sys/devices/system/cpu/online": "0-7\n"})
    assert seen() == (8, "affinity")


@pytest.mark.parametrize(
    ("quota", "effective", "binding"),
    [
        ("150000", 1.5, "cgroup v2 cpu.max"),
        ("200000", 2.0, "affinity"),
        ("900000", 2.0, "affinity"),
    ],
)
def test_a_quota_binds_only_below_the_affinity(
    tmp_path: Path, quota: str, effective: float, binding: str
) -> None:
    files = {
        "/proc/self/cgroup": "0::/",
        "/proc/self/mountinfo": "30 26 0:1 / /c rw - cgroup2 c rw",
        "/sys/devices/system/cpu/online": "0-7",
        "/c/cpu.max": f"{quota} 100000",
    }
    write_machine(tmp_path, files)
    root = TwoCpus(str(tmp_path))
    cpu = read_cpu(root, read_cgroups(root), {})
    assert (cpu.effective, cpu.from_, cpu.quota) == (effective, binding, int(quota) / 100000)


class EightCpus(Root):
    def affinity(self) -> frozenset[int]:
        return frozenset(range(8))


@pytest.mark.parametrize(
    ("request_", "quota", "bound_to", "effective"),
    [
        ("2", "max", 2, 2.0),
        ("2500m", "max", 3, 3.0),
        ("100m", "max", 1, 1.0),
        ("8", "max", None, 8.0),  # all that there is
        ("2", "400000", None, 4.0),  # the quota is what counts
        ("2", "1600000", None, 8.0),
        ("many", "max", None, 8.0),
    ],
)
def test_a_request_counts_where_no_quota_does(
    tmp_path: Path, request_: str, quota: str, bound_to: int | None, effective: float
) -> None:
    files = {
        "/proc/self/cgroup": "0::/",
        "/proc/self/mountinfo": "30 26 0:1 / /c rw - cgroup2 c rw",
        "/sys/devices/system/cpu/online": "0-7",
        "/c/cpu.max": f"{quota} 100000",
    }
    write_machine(tmp_path, files)
    root = EightCpus(str(tmp_path))
    cpu = read_cpu(root, read_cgroups(root), {"PREFLIGHT_CPU_REQUEST": request_})
    assert (cpu.bound_to, cpu.effective, cpu.affinity) == (bound_to, effective, 8)
    assert (cpu.from_ == "PREFLIGHT_CPU_REQUEST") == (bound_to is not None)
    assert (cpu.request_ignored is not None) == (request_ == "many")


def test_core_mates(tmp_path: Path) -> None:
    folder = "/sys/devices/system/cpu"
    files = {f"{folder}/cpu{n}/topology/thread_siblings_list": f"{n % 2},{n % 2 + 2}\n"
             for n in range(4)}  # fmt: skip
    root = write_machine(tmp_path, files)
    assert core_mates(root, {0, 3, 9}) == {0: {0, 2}, 3: {1, 3}, 9: {9}}
