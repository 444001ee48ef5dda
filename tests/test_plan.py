"""Which checks run, in which order, and what `auto` means on which machine."""

from __future__ import annotations

import pytest

from preflight import checks
from preflight.job import Job
from preflight.plan import UsageError, make_job, make_plan, select
from tests import making

KNOWN = checks.discover()
LISTED = ("limits", "shm", "dataloader")


def test_a_check_brings_what_it_needs_before_it() -> None:
    assert select(LISTED, KNOWN, ["dataloader"], []) == ("shm", "dataloader")


def test_what_a_check_needs_comes_first_however_it_is_listed() -> None:
    assert select(("dataloader", "limits", "shm"), KNOWN, [], []) == ("shm", "dataloader", "limits")


def test_skip_beats_need() -> None:
    assert select(LISTED, KNOWN, ["dataloader"], ["shm"]) == ("dataloader",)


def test_nothing_left_is_an_error_of_use() -> None:
    with pytest.raises(UsageError, match="nothing is left"):
        select(LISTED, KNOWN, ["limits"], ["limits"])


def job_on(
    effective: float, *, ranks: int | str = "auto", workers: int | str = "auto", gpus: int = 0
) -> Job:
    base = making.settings()
    cpu = making.facts().cpu.model_copy(update={"effective": effective})
    return make_job(
        sample=base.sample,
        loader=base.loader.model_copy(update={"ranks": ranks, "num_workers": workers}),
        stats=base.stats, consumer=base.consumer, workload=None,
        facts=making.facts(cpu=cpu, gpus=({},) * gpus),
        data=None, data_state=None, seed=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("effective", "gpus", "workers"),
    [(0.5, 0, 1), (1.5, 0, 1), (2.0, 0, 2), (64.0, 0, 8), (64.0, 16, 4), (3.0, 8, 1)],
)
def test_auto_workers_follow_the_cpus_of_a_rank(effective: float, gpus: int, workers: int) -> None:
    job = job_on(effective, gpus=gpus)
    assert (job.num_workers, job.ranks) == (workers, max(1, gpus))


def test_more_ranks_than_are_measured_are_refused() -> None:
    with pytest.raises(UsageError, match="measures one rank"):
        job_on(8.0, ranks=8)


def test_a_number_of_workers_stands() -> None:
    assert job_on(2.0, workers=12).num_workers == 12


def test_one_unit_for_each_rank() -> None:
    job = making.job(ranks=3)
    plan = make_plan(LISTED, KNOWN, making.settings().limits, job, making.facts(), deadline_s=60)
    subjects = {planned.check.id: planned.subjects for planned in plan.planned}
    assert subjects["dataloader"] == ("rank 0", "rank 1", "rank 2")
    assert subjects["shm"] == (None,)


def test_shared_memory_arithmetic_of_the_design() -> None:
    """64 images of 3 x 224 x 224 bytes, four workers, prefetch factor 2."""
    job = making.job(num_workers=4, batch_size=64, prefetch_factor=2)
    assert job.batch_bytes() == 9_633_792 + (-9_633_792 % 4096)
    assert job.shm_bytes() == job.batch_bytes() * 10
    assert round(job.shm_bytes() * 1.25 / 2**30, 4) == 0.1122
