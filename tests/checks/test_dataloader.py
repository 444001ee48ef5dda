"""dataloader: what a reading comes to, and the one memory rule that keeps it from starting."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.checks.contract import Unavailable
from preflight.checks.dataloader import CHECK, check_memory, may_load
from preflight.checks.dataloader.reading import DataloaderReading, limit_of
from preflight.diagnosis.data_paths import DATA_PATHS
from preflight.measure.stopping import Decision
from preflight.model import Rate
from preflight.outcome import Blame, Outcome
from tests import making


def rate(value: float) -> Rate:
    return Rate(
        value=value, low=0.97 * value, high=1.03 * value, unit="samples/s", blocks=8, discarded=0,
        samples=(value,) * 8,
    )  # fmt: skip


def decision(verdict: str, value: float, disturbed: int = 0) -> Decision:
    return Decision(
        verdict=verdict, clause="all", rate=rate(value), blocks=8, disturbed_blocks=disturbed
    )


def reading(verdict: str = "reached", value: float = 3000.0, **changes: Any) -> DataloaderReading:
    seen = DataloaderReading(
        supply_samples_per_s=rate(value), demand_samples_per_s=2790.0, demand_from="site",
        limit_samples_per_s=2511.0, workload="resnet50", data=None, data_state=None, ranks=1,
        num_workers=8, batch_size=256, effective_cpus=8.0, own_cpu_share=0.99, window_s=2.0,
        first_batch_s=1.0,
        decision=decision(verdict, value), max_disturbance=0.05, disturbed_share=0.0, seed=1,
    )  # fmt: skip
    return seen.model_copy(update=changes)


def judged(seen: DataloaderReading, **limits: Any) -> dict[str, Any]:
    held = making.limits("dataloader", demand_samples_per_s=2790.0, **limits)
    return {finding.id: finding for finding in CHECK.judge([seen], held)}


def test_a_supply_that_reaches_the_limit_passes() -> None:
    findings = judged(reading())
    assert {finding.outcome for finding in findings.values()} == {Outcome.PASS}
    assert findings["dataloader.supply"].limit == 2511.0


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [("missed", Outcome.FAIL), ("close", Outcome.WARN), ("undecided", Outcome.ERROR)],
)
def test_verdicts_become_outcomes(verdict: str, outcome: Outcome) -> None:
    finding = judged(reading(verdict, 2400.0))["dataloader.supply"]
    assert finding.outcome is outcome
    assert finding.cause and finding.remedy and finding.blame


@pytest.mark.parametrize(("bound", "outcome"), [(2, Outcome.PASS), (None, Outcome.WARN)])
def test_a_loader_that_could_not_be_bound_to_the_request_says_so(
    bound: int | None, outcome: Outcome
) -> None:
    finding = judged(reading(requested_cpus=2, bound_cpus=bound))["dataloader.cpu_request"]
    assert finding.outcome is outcome
    assert bound or ("2 CPUs that are requested" in finding.cause and finding.blame == "setup")
    assert "dataloader.cpu_request" not in judged(reading())


def test_a_request_is_named_as_what_the_workers_used_up() -> None:
    seen = reading("missed", 811.9, requested_cpus=2, bound_cpus=2, effective_cpus=2.0)
    finding = judged(seen)["dataloader.supply"]
    assert finding.cause == "the loader workers used all 2 CPUs that the pod requests"
    assert finding.remedy.startswith("request 7 CPUs (2,790 / 811.9 x 2 = 6.9)")


def test_a_quota_is_named_with_the_arithmetic_of_the_remedy() -> None:
    seen = reading("missed", 811.9, quota_cpus=2.0, effective_cpus=2.0, num_workers=4)
    finding = judged(seen)["dataloader.supply"]
    assert finding.cause == "the loader workers used all of the 2-CPU quota"
    assert finding.remedy == (
        "give the container at least 7 CPUs (it has a quota of 2; 2,790 / 811.9 x 2 = 6.9) and set "
        "loader.num_workers to 7"
    )
    assert finding.cause_id == "cpu_quota"
    assert finding.blame == "setup"


@pytest.mark.parametrize(
    ("changes", "cause", "blame"),
    [
        ({"own_cpu_share": 0.98}, "used all 8 CPUs", "setup"),
        ({"own_cpu_share": 0.3, "num_workers": 2}, "2 workers used 30% of 8 CPUs", "setup"),
        ({"own_cpu_share": 0.3}, "the workers waited", "unknown"),
        (
            {"own_cpu_share": 0.67, "num_workers": 1, "effective_cpus": 1.5},
            "1 workers used 67% of 1.5 CPUs", "setup",
        ),
        (
            {"own_cpu_share": 0.99, "quota_cpus": None, "effective_cpus": 2.0},
            "used all 2 CPUs", "setup",
        ),
        (
            {"own_cpu_share": 0.6, "disturbed_share": 0.4},
            "used all 8 CPUs they may run on (others' 40% left out)", "setup",
        ),
        (
            {"own_cpu_share": 0.5, "quota_cpus": 4.0, "throttled_percent": 60.0},
            "all of the 4-CPU quota", "setup",
        ),
    ],
)  # fmt: skip
def test_causes(changes: dict[str, Any], cause: str, blame: str) -> None:
    finding = judged(reading("missed", 1000.0, **changes))["dataloader.supply"]
    assert cause in finding.cause
    assert finding.blame == blame


@pytest.mark.parametrize(
    ("workers", "value", "remedy"),
    [
        (4, 1500.0, "set loader.num_workers to 8"),
        (
            1, 241.0,
            "set loader.num_workers to 8 and give the container 12 CPUs (2,790 / 241.0 x 1 = 11.6)",
        ),
    ],
)  # fmt: skip
def test_more_workers_are_only_enough_where_the_arithmetic_says_so(
    workers: int, value: float, remedy: str
) -> None:
    seen = reading("missed", value, num_workers=workers, own_cpu_share=workers / 8)
    assert judged(seen)["dataloader.supply"].remedy == remedy


def test_an_undecided_rate_says_whether_neighbours_or_nearness_did_it() -> None:
    near = judged(reading("undecided", 2500.0))["dataloader.supply"]
    assert near.cause == "too close to the limit: [2,425, 2,575]"
    seen = reading("undecided", 2500.0).model_copy(
        update={"decision": decision("undecided", 2500.0, disturbed=5), "disturbed_share": 0.3}
    )
    findings = judged(seen)
    assert "others used CPU in 5 of 8 blocks" in findings["dataloader.supply"].cause
    assert findings["dataloader.contended"].outcome is Outcome.WARN
    assert findings["dataloader.contended"].blame == "shared"


def test_a_pass_beside_neighbours_is_a_plain_pass() -> None:
    assert "dataloader.contended" not in judged(reading(disturbed_share=0.3))


def test_a_close_rate_beside_neighbours_blames_them() -> None:
    finding = judged(reading("close", 2500.0, disturbed_share=0.4))["dataloader.supply"]
    assert finding.cause == (
        "too close to the limit to be sure: at least 2,425 samples/s; "
        "others used 40% of the CPUs while the loader ran"
    )
    assert finding.blame == "shared"
    quiet = judged(reading("close", 2500.0))["dataloader.supply"]
    assert "used all 8 CPUs" in quiet.cause and quiet.blame == "setup"


def test_too_few_blocks_is_undecided() -> None:
    finding = judged(reading(decision=None, supply_samples_per_s=None))["dataloader.supply"]
    assert finding.outcome is Outcome.ERROR
    assert "too few samples" in finding.cause


@pytest.mark.parametrize("state", sorted(DATA_PATHS))
def test_a_bad_data_path_fails_with_its_own_blame(state: str) -> None:
    (finding,) = judged(reading(data="/data", data_state=state)).values()
    assert finding.id == "dataloader.data"
    assert finding.outcome is Outcome.FAIL
    assert "/data" in finding.cause and finding.remedy
    assert finding.blame == DATA_PATHS[state].blame


def test_samples_of_the_jobs_own_data_set_that_raise_are_the_datas() -> None:
    assert "dataloader.corrupt_samples" not in judged(reading(dataset="job:make"))
    raised = {
        "dataset": "job:make",
        "corrupt_files": ("sample 3: OSError: cut off (job.py, line 9)",),
    }
    few = judged(reading(**raised, corrupt_samples=1, corrupt_percent=0.5))
    assert few["dataloader.corrupt_samples"].outcome is Outcome.WARN
    many = judged(reading(**raised, corrupt_samples=60, corrupt_percent=5.0))
    finding = many["dataloader.corrupt_samples"]
    assert (finding.outcome, finding.blame) == (Outcome.FAIL, Blame.DATA)
    assert "60 samples of job:make raised, among them sample 3: OSError" in finding.cause


def test_a_loader_without_workers_is_told_where_to_get_some() -> None:
    own = reading(
        "missed", 800.0, dataset="job:make", dataset_kind="dataloader", num_workers=0,
        own_cpu_share=0.125,
    )  # fmt: skip
    remedy = judged(own)["dataloader.supply"].remedy
    assert remedy is not None and remedy.startswith("set num_workers of its DataLoader to 8")


def test_a_data_set_of_the_jobs_own_reads_any_kind_of_file() -> None:
    one_file = making.job(data="/data/train.lmdb", data_state="not_a_folder")
    assert not may_load(one_file)
    assert may_load(one_file.model_copy(update={"dataset": "job:make"}))
    empty = making.job(data="/data", data_state="empty", dataset="job:make")
    assert not may_load(empty)


def test_corrupt_files_are_named_and_judged_by_their_share() -> None:
    few = reading(corrupt_samples=2, corrupt_percent=0.5, corrupt_files=("/data/a.jpg",))
    finding = judged(few)["dataloader.corrupt_samples"]
    assert finding.outcome is Outcome.WARN
    assert "/data/a.jpg" in finding.cause
    many = few.model_copy(update={"corrupt_percent": 7.0})
    finding = judged(many)["dataloader.corrupt_samples"]
    assert (finding.outcome, finding.blame) == (Outcome.FAIL, "data")


def test_a_late_first_batch_fails_only_where_a_limit_is_set() -> None:
    seen = reading(first_batch_s=9.0)
    assert "dataloader.first_batch" not in judged(seen)
    assert judged(seen, max_first_batch_s=5.0)["dataloader.first_batch"].outcome is Outcome.FAIL


def test_a_start_longer_than_the_window_warns() -> None:
    assert judged(reading(first_batch_s=9.0))["dataloader.start_up"].outcome is Outcome.WARN


def test_a_named_workload_without_a_demand_is_undecided() -> None:
    """Not by the floor either: it is the reference image's, and volumes are slower."""
    (finding,) = judged(reading(demand_samples_per_s=None, limit_samples_per_s=100.0)).values()
    assert (finding.id, finding.outcome) == ("dataloader.demand", Outcome.ERROR)
    assert "--gpu NAME" in finding.remedy


def test_without_a_workload_the_table_only_warns() -> None:
    seen = reading(demand_samples_per_s=None, workload=None, value=900.0)
    findings = judged(seen, reference_demand_samples_per_s=2790.0)
    assert findings["dataloader.reference"].outcome is Outcome.WARN
    assert findings["dataloader.supply"].outcome is Outcome.PASS
    assert "dataloader.demand" not in findings


def test_the_limit_is_the_demand_times_the_ratio_or_the_floor() -> None:
    held = making.limits("dataloader", demand_samples_per_s=2790.0)
    assert limit_of(held) == pytest.approx(2511.0)
    assert limit_of(making.limits("dataloader")) == 100.0


def test_a_loader_that_would_not_fit_is_not_started() -> None:
    held = making.limits("dataloader")
    check_memory(making.job(), held, making.facts())
    with pytest.raises(Unavailable, match=r"4 workers x 0.2 GiB.*docker run --memory"):
        memory = making.facts().memory.model_copy(update={"headroom_gib": 1.0})
        check_memory(making.job(), held, making.facts(memory=memory))


def of_ranks(seen: list[DataloaderReading], name: str) -> list[Any]:
    findings = CHECK.judge(seen, making.limits("dataloader"))
    return [finding for finding in findings if finding.id == f"dataloader.{name}"]


def test_ranks_that_miss_are_told_one_cause_and_the_slowest_ones_remedy() -> None:
    seen = [
        reading("missed", rate, rank=rank, ranks=3, own_cpu_share=1.0)
        for rank, rate in enumerate((1000.0, 900.0, 950.0))
    ]
    misses = [
        f for f in CHECK.judge(seen, making.limits("dataloader")) if f.id == "dataloader.supply"
    ]
    assert [finding.observed for finding in misses] == [1000.0, 900.0, 950.0]
    (cause,) = {finding.cause for finding in misses}
    (remedy,) = {finding.remedy for finding in misses}
    assert cause == "the loader workers of 3 ranks used all 8 CPUs they may run on"
    assert remedy == (
        "give the container 25 CPUs (2,790 / 900.0 x 8 = 24.8) and set loader.num_workers to 9"
    )


def test_a_rank_that_reached_its_limit_beside_one_that_did_not_passes() -> None:
    seen = [reading("reached", 2600.0, rank=0, ranks=2), reading("missed", 900.0, rank=1, ranks=2)]
    outcomes = [
        f.outcome
        for f in CHECK.judge(seen, making.limits("dataloader"))
        if f.id == "dataloader.supply"
    ]
    assert outcomes == [Outcome.PASS, Outcome.FAIL]


def test_neighbours_are_told_of_once_and_not_by_every_rank() -> None:
    seen = [
        reading("undecided", 2500.0, rank=rank, ranks=2, disturbed_share=share)
        for rank, share in enumerate((0.3, 0.4))
    ]
    contended = [
        f for f in CHECK.judge(seen, making.limits("dataloader")) if f.id == "dataloader.contended"
    ]
    assert [finding.observed for finding in contended] == [40.0]


def test_what_is_true_of_all_ranks_is_said_once() -> None:
    seen = [
        reading(rank=rank, ranks=2, corrupt_samples=rank, corrupt_percent=float(rank))
        for rank in range(2)
    ]
    (corrupt,) = of_ranks(seen, "corrupt_samples")
    assert corrupt.observed == 1.0
    gone = [reading(rank=rank, ranks=2, data="/data", data_state="empty") for rank in range(2)]
    assert [f.id for f in CHECK.judge(gone, making.limits("dataloader"))] == ["dataloader.data"]


def test_a_spent_budget_is_named_where_it_left_the_rate_open() -> None:
    seen = reading("undecided", 2500.0, budget_spent=True, read_gib=2.0)
    assert "may read 2 GiB" in (judged(seen)["dataloader.supply"].cause or "")
