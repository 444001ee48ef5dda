"""From counters and looks to shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from preflight.checks.dataloader.evidence import Evidence
from preflight.measure.evidence import Mark, evidence
from preflight.measure.model_rate import Spent

START = Mark(
    at_s=100.0,
    spent=Spent(
        samples=1000, getitem_wall_s=10.0, getitem_cpu_s=5.0, workers_cpu_s=8.0,
        workers_delay_s=1.0, main_cpu_s=3.0,
    ),
    inside_s=11.0, collate_s=2.0, collate_cpu_s=1.0, read_bytes=5_000, disk_bytes=4_096,
    major_faults=10,
)  # fmt: skip
END = Mark(
    at_s=102.0,
    spent=Spent(
        samples=1200, getitem_wall_s=12.0, getitem_cpu_s=6.5, workers_cpu_s=10.0,
        workers_delay_s=1.4, main_cpu_s=3.5,
    ),
    inside_s=14.0, collate_s=2.8, collate_cpu_s=1.2, read_bytes=2_005_000, disk_bytes=1_004_096,
    major_faults=2_010,
)  # fmt: skip


def of(start: Mark = START, end: Mark = END, **seen: Any) -> Evidence:
    looks = seen.pop("looks", Counter())
    found = evidence(start, end, 2, looks, seen.pop("uninterruptible", 0), 100, "a.py:1")
    assert found is not None
    return found


def test_shares_are_of_the_workers_wall_time() -> None:
    found = of()
    assert (found.getitem_share, found.getitem_cpu_share) == (0.75, 0.75)
    assert (found.collate_share, found.collate_cpu_share) == (0.2, 0.05)
    assert (found.worker_cpu_share, found.worker_delay_share) == (0.5, 0.1)
    assert found.main_cpu_share == 0.25
    assert (found.read_bytes_per_sample, found.disk_bytes_per_sample) == (10_000, 5_000)
    assert found.major_faults_per_s == 1_000
    assert (found.cpu_weight, found.slow_line) == (100, "a.py:1")
    assert (found.waits, found.looks, found.disk_wait_share) == ({}, 0, None)


def test_what_is_hidden_stays_unknown() -> None:
    hidden = replace(END, spent=replace(END.spent, workers_cpu_s=None), disk_bytes=None)
    found = of(end=hidden)
    assert found.worker_cpu_share is found.disk_bytes_per_sample is None
    gone = of(end=replace(END, major_faults=3, read_bytes=0))  # another worker in its place
    assert gone.major_faults_per_s is gone.read_bytes_per_sample is None
    assert (
        of(end=replace(END, spent=replace(END.spent, samples=1000))).read_bytes_per_sample is None
    )
    idle = replace(END, spent=replace(END.spent, getitem_wall_s=10.0))
    assert of(end=idle).getitem_cpu_share is None


def test_clocks_that_are_read_one_after_the_other_make_no_share_above_one() -> None:
    assert of(end=replace(END, inside_s=15.2)).getitem_share == 1.0
    assert of(end=replace(END, collate_s=1.9)).collate_share == 0.0
    assert evidence(START, START, 2, Counter(), 0, None, None) is None


LOOKS: Counter[tuple[str, str | None]] = Counter({
    ("getitem", "disk"): 50, ("getitem", "running"): 20, ("collate", "running"): 10,
    ("between", "poll"): 15, ("between", "running"): 5,
})  # fmt: skip


def test_waits_count_inside_the_data_set_and_for_work_outside_it() -> None:
    found = of(looks=LOOKS, uninterruptible=40)
    assert {kind: share for kind, share in found.waits.items() if share} == {
        "disk": 0.5, "work": 0.15,
    }  # fmt: skip
    assert (found.looks, found.disk_wait_share) == (100, 0.4)


@pytest.mark.parametrize(("hidden", "known"), [(30, True), (100, False)])
def test_with_most_waits_hidden_the_rest_says_nothing(hidden: int, known: bool) -> None:
    found = of(looks=LOOKS + Counter({("getitem", None): hidden}), uninterruptible=40)
    assert bool(found.waits) is known
    assert found.disk_wait_share
