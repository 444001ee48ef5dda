from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.machine.load import LoadMeter, cpu_ticks, parse_schedstat, parse_stat_ticks
from preflight.machine.root import Root, host
from tests.fakes import write_machine

STAT = (
    "cpu  60 6 6 600 60 6 6 60 0 0\n"
    "cpu0 10 1 1 100 10 1 1 10 0 0\n"
    "cpu1 20 2 2 200 20 2 2 20 0 0\n"
    "cpu2 30 3 3 300 30 3 3 30 0 0\n"
    "intr 99 0 0\nctxt 5\n"
)
TICK = os.sysconf("SC_CLK_TCK")


def schedstat(cpu_s: float, delay_s: float, turns: int = 1) -> str:
    return f"{cpu_s * 1e9:.0f} {delay_s * 1e9:.0f} {turns}\n"


def process_stat(utime: int, stime: int, name: str = "python") -> str:
    return f"7 ({name}) S 1 7 7 0 -1 4194304 100 0 0 0 {utime} {stime} 0 0 20 0 1 0 500 1000 10\n"


def tasks(pid: int, threads: dict[int, str]) -> dict[str, str]:
    return {f"/proc/{pid}/task/{tid}/schedstat": text for tid, text in threads.items()}


def remove(folder: Path, name: str) -> None:
    subprocess.run(["rm", "-r", str(folder / name.lstrip("/"))], check=True)


def test_only_the_cpus_of_our_affinity_count(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {"/proc/stat": STAT})
    load = LoadMeter(root, frozenset({0, 2}), list).read(5.0)
    assert load.at_s == 5.0
    # user + nice + system + irq + softirq of cpu0 and cpu2
    assert load.busy_s == pytest.approx((14 + 42) / TICK)
    assert load.steal_s == pytest.approx(40 / TICK)


@pytest.mark.parametrize(
    "stat",
    [
        None,
        "",
        "cpu  1 2 3\ncpu0 1 2 3\n",
        "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n",
        "cpu  1 1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1 1\n",  # one of our two CPUs is not there
    ],
)
def test_a_hidden_stat_is_none(tmp_path: Path, stat: str | None) -> None:
    root = write_machine(tmp_path, {} if stat is None else {"/proc/stat": stat})
    load = LoadMeter(root, frozenset({0, 1}), list).read(0.0)
    assert (load.busy_s, load.steal_s) == (None, None)


def test_threads_of_several_processes_add_up(tmp_path: Path) -> None:
    files = tasks(7, {7: schedstat(1.5, 0.25), 8: schedstat(0.5, 0.5)})
    files |= tasks(9, {9: schedstat(4.0, 1.0)})
    meter = LoadMeter(write_machine(tmp_path, files), frozenset(), lambda: [7, 9])
    load = meter.read(0.0)
    assert load.own_cpu_s == pytest.approx(6.0)
    assert load.run_delay_s == {7: pytest.approx(0.75), 9: pytest.approx(1.0)}


def test_siblings_use_our_cpu_time_and_their_waiting_is_not_ours(tmp_path: Path) -> None:
    files = tasks(7, {7: schedstat(1.5, 0.25)}) | tasks(9, {9: schedstat(4.0, 1.0)})
    root = write_machine(tmp_path, files)
    meter = LoadMeter(root, frozenset(), lambda: [7], siblings=lambda: [7, 9])
    load = meter.read(0.0)
    assert load.own_cpu_s == pytest.approx(5.5)
    assert load.run_delay_s == {7: pytest.approx(0.25)}
    assert meter.cpu_s([7]) == pytest.approx(1.5)
    assert meter.cpu_s([8]) is None


def test_threads_and_processes_that_end_keep_what_they_used(tmp_path: Path) -> None:
    pids = [7, 9]
    files = tasks(7, {7: schedstat(1.0, 0.1), 8: schedstat(2.0, 0.2)})
    root = write_machine(tmp_path, files | tasks(9, {9: schedstat(4.0, 0.4)}))
    meter = LoadMeter(root, frozenset(), lambda: pids)
    assert meter.read(0.0).own_cpu_s == pytest.approx(7.0)

    remove(tmp_path, "/proc/7/task/8")
    remove(tmp_path, "/proc/9")
    write_machine(tmp_path, tasks(7, {7: schedstat(1.5, 0.15)}))
    load = meter.read(1.0)
    assert load.own_cpu_s == pytest.approx(7.5)
    assert load.run_delay_s[7] == pytest.approx(0.35)

    pids.remove(9)
    assert set(meter.read(2.0).run_delay_s) == {7}
    pids.clear()
    assert meter.read(3.0).own_cpu_s == pytest.approx(7.5)


def test_a_number_used_again_is_another_thread(tmp_path: Path) -> None:
    root = write_machine(tmp_path, tasks(7, {7: schedstat(5.0, 1.0)}))
    meter = LoadMeter(root, frozenset(), lambda: [7])
    meter.read(0.0)
    write_machine(tmp_path, tasks(7, {7: schedstat(0.5, 0.25)}))
    load = meter.read(1.0)
    assert load.own_cpu_s == pytest.approx(5.5)
    assert load.run_delay_s[7] == pytest.approx(1.25)


@pytest.mark.parametrize("threads", [{}, {7: "0 0 0\n"}, {7: ""}])
def test_without_schedstat_the_ticks_are_taken_and_the_delay_is_unknown(
    tmp_path: Path, threads: dict[int, str]
) -> None:
    files = tasks(7, threads) | {"/proc/7/stat": process_stat(300, 50, "odd) (name")}
    root = write_machine(tmp_path, files)
    meter = LoadMeter(root, frozenset(), lambda: [7])
    assert meter.read(0.0).own_cpu_s == pytest.approx(350 / TICK)
    write_machine(tmp_path, {"/proc/7/stat": process_stat(310, 60)})
    load = meter.read(1.0)
    assert load.own_cpu_s == pytest.approx(370 / TICK)
    assert load.run_delay_s == {7: None}


def test_an_ending_process_is_not_counted_twice(tmp_path: Path) -> None:
    files = tasks(7, {7: schedstat(3.0, 0.1)}) | {"/proc/7/stat": process_stat(290, 10)}
    root = write_machine(tmp_path, files)
    meter = LoadMeter(root, frozenset(), lambda: [7])
    meter.read(0.0)
    remove(tmp_path, "/proc/7/task")
    assert meter.read(1.0).own_cpu_s == pytest.approx(3.0)


def test_processes_that_cannot_be_read_at_all(tmp_path: Path) -> None:
    load = LoadMeter(Root(str(tmp_path)), frozenset(), lambda: [7]).read(0.0)
    assert load.own_cpu_s is None
    assert load.run_delay_s == {7: None}


@given(st.lists(st.dictionaries(st.integers(1, 4), st.floats(0, 9)), max_size=8))
def test_own_time_never_falls(reads: list[dict[int, float]]) -> None:
    class Changing(Root):
        threads: dict[int, float] = {}  # noqa: RUF012

        def list_dir(self, name: str) -> list[str]:
            return [str(tid) for tid in self.threads]

        def read_text(self, name: str) -> str | None:
            tid = name.split("/")[4] if "/task/" in name else ""
            return schedstat(self.threads[int(tid)], 0.0) if tid else None

    meter, last = LoadMeter(Changing(), frozenset(), lambda: [7]), 0.0
    for Changing.threads in reads:
        own = meter.read(0.0).own_cpu_s or 0.0
        assert own >= last
        last = own


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2000000000 500000000 12\n", (2.0, 0.5)),
        ("0 81245 1\n", (0.0, 8.1245e-05)),
        ("0 0 0\n", None),
        ("1 2\n", None),
        ("", None),
        (None, None),
        ("a b c\n", None),
    ],
)
def test_schedstat(text: str | None, expected: tuple[float, float] | None) -> None:
    assert parse_schedstat(text) == expected


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        (process_stat(3, 4), 7),
        (process_stat(3, 4, "a) b (c"), 7),
        ("7 (x) S 1", None),
        ("", None),
        (None, None),
    ],
)
def test_stat_ticks(text: str | None, ticks: int | None) -> None:
    assert parse_stat_ticks(text) == ticks


def test_cut_off_anywhere_nothing_raises() -> None:
    chance = random.Random(1)
    for _ in range(200):
        where = chance.randrange(len(STAT))
        cpu_ticks(STAT[:where] + chance.choice(("", "\0", "-1", "cpu")) + STAT[where + 3 :])


_BURN = """
import sys, time
while time.process_time() < 0.4: pass
print(time.process_time(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.timeout(60)
def test_cpu_time_of_a_real_child() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _BURN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        meter = LoadMeter(host(), host().affinity(), lambda: [child.pid])
        before = meter.read(0.0).own_cpu_s or 0.0
        used = float(child.stdout.readline())
        load = meter.read(1.0)
        child.communicate("\n")
    assert load.own_cpu_s is not None
    assert 0 <= before < 0.4
    assert load.own_cpu_s == pytest.approx(used, abs=0.05)
