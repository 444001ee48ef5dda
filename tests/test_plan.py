"""Which checks run, in which order, and what `auto` means on which machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from preflight import checks
from preflight.facts import Facts
from preflight.job import DataOn, Job
from preflight.plan import UsageError, make_job, make_plan, select
from preflight.settings import SHIPPED, Request, resolve
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
    effective: float,
    *,
    ranks: int | str = "auto",
    workers: int | str = "auto",
    gpus: int = 0,
    data_on: DataOn | None = None,
) -> Job:
    base = making.settings()
    cpu = making.facts().cpu.model_copy(update={"effective": effective})
    return make_job(
        sample=base.sample,
        loader=base.loader.model_copy(update={"ranks": ranks, "num_workers": workers}),
        stats=base.stats, consumer=base.consumer, workload=None,
        facts=making.gpu_facts(*map(making.gpu, range(gpus)), cpu=cpu) if gpus else
        making.facts(cpu=cpu),
        data=None, data_state=None, gpu_sharing="exclusive", seed=1,
        max_read_gib=16.0, pace_ratio=1.25, data_on=data_on,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("effective", "gpus", "workers"),
    [(0.5, 0, 1), (1.5, 0, 1), (2.0, 0, 2), (64.0, 0, 8), (64.0, 16, 4), (3.0, 8, 1)],
)
def test_auto_workers_follow_the_cpus_of_a_rank(effective: float, gpus: int, workers: int) -> None:
    job = job_on(effective, gpus=gpus)
    assert (job.num_workers, job.ranks) == (workers, max(1, gpus))


@pytest.mark.parametrize(
    ("kind", "pace"),
    [("network", 1.25), ("unknown", 1.25), ("local", None), ("memory", None), (None, None)],
)
def test_what_others_may_read_from_too_is_read_at_a_pace(kind: Any, pace: float | None) -> None:
    on = kind and DataOn(point="/data", fs_type="x", source="y", kind=kind)
    assert job_on(2.0, data_on=on).pace_ratio == pace


@pytest.mark.parametrize(("data", "runs"), [(None, False), ("/data", True)])
def test_what_reads_the_data_path_needs_one(data: str | None, runs: bool) -> None:
    plan = make_plan(
        ["storage"], KNOWN, making.settings("default").limits, making.job(data=data),
        making.facts(), gpu_expected=False, deadline_s=60,
    )  # fmt: skip
    assert (plan.planned[0].skip is None) == runs


def test_storage_needs_files_that_it_can_read_itself() -> None:
    def skip(**changes: object) -> str | None:
        base = making.settings()
        plan = make_plan(
            ["storage"], KNOWN, base.limits, making.job(**changes), making.facts(),
            gpu_expected=False, deadline_s=60.0,
        )  # fmt: skip
        return plan.planned[0].skip

    assert skip() == "no data path was named (--data)"
    assert skip(data="/data", data_state="ok") is None
    assert skip(data="/data", data_state="not_a_folder") is None  # it says so, and fails
    one_file = skip(data="/data/train.lmdb", data_state="not_a_folder", dataset="job:make")
    assert one_file is not None and "only the job's own data set" in one_file


def test_a_number_of_workers_stands() -> None:
    assert job_on(2.0, workers=12).num_workers == 12


def units(
    facts: Facts, ids: Sequence[str] = LISTED, *, ranks: int = 1, expected: bool = True
) -> dict[str, list[tuple[str | None, str | None]]]:
    """By check: each unit's subject, and the device it is given."""
    plan = make_plan(
        ids, KNOWN, making.settings("default").limits, making.job(ranks=ranks), facts,
        gpu_expected=expected, deadline_s=60,
    )  # fmt: skip
    return {
        one.check.id: [(unit.subject, unit.cuda_id) for unit in one.units]
        for one in plan.planned
        if one.skip is None
    }


def test_every_rank_is_a_unit() -> None:
    planned = units(making.facts(), ranks=3)
    assert planned["dataloader"] == [("rank 0", None), ("rank 1", None), ("rank 2", None)]
    assert planned["shm"] == [(None, None)]


def test_a_rank_has_a_gpu_where_there_is_one() -> None:
    two = making.gpu_facts(making.gpu(0), making.gpu(1))
    first, second = (gpu.uuid for gpu in two.gpus)
    assert units(two, ranks=3)["dataloader"] == [
        ("rank 0", first), ("rank 1", second), ("rank 2", first)
    ]  # fmt: skip


def test_each_gpu_gets_a_process_that_sees_it_alone() -> None:
    """One that does not answer is left out; MIG slices are devices of their own."""
    facts = making.gpu_facts(
        making.gpu(0),
        making.gpu(1, error_code=15, error="GPU lost", uuid=None),
        making.gpu(2, mig=True, mig_slices=("MIG-a", "MIG-b")),
    )
    assert units(facts, ["driver_cuda"])["driver_cuda"] == [
        ("GPU 0", facts.gpus[0].uuid), ("GPU 2 MIG 0", "MIG-a"), ("GPU 2 MIG 1", "MIG-b"),
    ]  # fmt: skip


def test_without_a_gpu_there_is_one_unit_to_say_so() -> None:
    assert units(making.facts(), ["driver_cuda"])["driver_cuda"] == [(None, None)]


def test_where_no_gpu_is_expected_gpu_checks_do_not_apply() -> None:
    planned = units(making.gpu_facts(), ["driver_cuda", "gpus", "shm"], expected=False)
    assert list(planned) == ["shm"]


def test_shared_memory_arithmetic_of_the_design() -> None:
    """64 images of 3 x 224 x 224 bytes, four workers, prefetch factor 2."""
    job = making.job(num_workers=4, batch_size=64, prefetch_factor=2)
    assert job.batch_bytes() == 9_633_792 + (-9_633_792 % 4096)
    assert job.shm_bytes() == job.batch_bytes() * 10
    assert round(job.shm_bytes() * 1.25 / 2**30, 4) == 0.1122


def planned_demand(ranks: int, *, gpus: int = 0, **asked: Any) -> tuple[Any, Any, Any]:
    """What the loader check is held to: demand, where from, and the reference."""
    known = {id: check.limits for id, check in KNOWN.items()}
    settings = resolve(Request(**asked), known, SHIPPED)
    job = job_on(8.0, ranks=ranks or "auto", gpus=gpus)
    plan = make_plan(
        ("dataloader",), KNOWN, settings.limits, job, making.facts(), gpu_expected=False,
        deadline_s=60,
    )  # fmt: skip
    limits: Any = plan.planned[0].limits
    return (
        limits.demand_samples_per_s, limits.demand_from, limits.reference_demand_samples_per_s,
    )  # fmt: skip


def test_one_rank_is_held_to_what_one_gpu_takes() -> None:
    assert planned_demand(1, gpu="a100-sxm", workload="resnet50") == (2470, "gpu table", None)


def test_several_ranks_are_held_to_the_tables_figure_for_several() -> None:
    said = "gpu table, multi-GPU (8 ranks)"
    assert planned_demand(8, gpu="a100-sxm", workload="resnet50") == (2078, said, None)
    assert planned_demand(0, gpus=8, gpu="a100-sxm", workload="resnet50") == (2078, said, None)


def test_several_ranks_without_such_a_figure_are_held_to_a_share() -> None:
    held = planned_demand(2, gpu="a100-pcie", workload="resnet50")
    assert held == (pytest.approx(0.85 * 1396), "gpu table x 0.85 (2 ranks)", None)


def test_a_stated_demand_is_per_rank_already() -> None:
    held = planned_demand(
        8, gpu="a100-sxm", workload="resnet50",
        set_options=["dataloader.demand_samples_per_s=3000"],
    )  # fmt: skip
    assert held == (3000, "set", None)


def test_the_reference_follows_the_ranks_too() -> None:
    assert planned_demand(1, gpu="a100-sxm") == (None, None, 2470)
    assert planned_demand(8, gpu="a100-sxm") == (None, None, 2078)
    assert planned_demand(8, gpu="none") == (None, None, None)
