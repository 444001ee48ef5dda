"""limits: readings held against the shipped limits."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.checks.contract import Unit
from preflight.checks.limits import CHECK, LimitsReading
from preflight.machine.root import host
from preflight.outcome import Outcome
from preflight.scratch import Scratch
from tests import making

HEALTHY = LimitsReading(
    effective_cpus=8.0, cpus_from="online CPUs", bound_cpus=None, online_cpus=8, planned_workers=8,
    guaranteed_cpus=None, memory_headroom_gib=30.0, memory_from="MemAvailable", nofile=65536,
    nofile_need=300, pids_free=None, pids_need=80, memlock_gib=None, pinned_need_gib=0.0,
    container=None, root=False, data=None, data_writable_at=None,
)  # fmt: skip


def judged(**changes: Any) -> dict[str, Any]:
    seen = HEALTHY.model_copy(update=changes)
    return {finding.id: finding for finding in CHECK.judge([seen], making.limits("limits"))}


def test_a_healthy_machine_passes() -> None:
    assert {finding.outcome for finding in judged().values()} == {Outcome.PASS}


@pytest.mark.parametrize(
    ("changes", "id", "outcome", "said"),
    [
        ({"planned_workers": 12}, "workers_per_cpu", Outcome.WARN, "give the container 12 CPUs"),
        (
            {"planned_workers": 17},
            "workers_per_cpu", Outcome.FAIL, "9 CPUs or set loader.num_workers to 16",
        ),
        ({"memory_headroom_gib": 0.5}, "memory_headroom", Outcome.FAIL, "by at least 0.5 GiB"),
        ({"nofile": 256}, "nofile", Outcome.FAIL, "ulimit -n 300"),
        ({"pids_free": 20}, "pids", Outcome.FAIL, "podPidsLimit"),
        (
            {"memlock_gib": 0.01, "pinned_need_gib": 1.0},
            "memlock", Outcome.WARN, "memlock=-1",
        ),
        ({"guaranteed_cpus": 2.0}, "cpu_weight", Outcome.WARN, "request 8 CPUs"),
        ({"container": "docker", "root": True}, "user", Outcome.WARN, "--user 10001"),
        (
            {"container": "docker", "data": "/data/train", "data_writable_at": "/data"},
            "data_mount", Outcome.WARN, ":/data:ro",
        ),
    ],
)  # fmt: skip
def test_misses(changes: dict[str, Any], id: str, outcome: Outcome, said: str) -> None:
    finding = judged(**changes)[f"limits.{id}"]
    assert finding.outcome is outcome
    assert said in finding.remedy
    assert finding.blame == "setup"


def test_in_a_container_as_it_should_be_all_is_looked_at_and_passes() -> None:
    seen = judged(container="kubernetes", data="/data")
    assert {finding.outcome for finding in seen.values()} == {Outcome.PASS}
    assert {"limits.user", "limits.data_mount"} <= set(seen)


def test_root_and_a_writable_folder_are_usual_on_a_host() -> None:
    seen = judged(root=True, data="/data", data_writable_at="/data")
    assert not {"limits.user", "limits.data_mount"} & set(seen)


def test_without_data_there_is_no_word_of_its_mount() -> None:
    assert "limits.data_mount" not in judged(container="docker")


@pytest.mark.parametrize(
    ("workers", "outcome"), [(2, Outcome.PASS), (4, Outcome.WARN), (5, Outcome.FAIL)]
)
def test_a_request_without_a_quota_is_what_counts(workers: int, outcome: Outcome) -> None:
    seen = judged(
        effective_cpus=2.0, cpus_from="PREFLIGHT_CPU_REQUEST", bound_cpus=2, guaranteed_cpus=1.5,
        online_cpus=32, planned_workers=workers,
    )  # fmt: skip
    finding = seen["limits.workers_per_cpu"]
    assert finding.outcome is outcome
    assert "limits.cpu_weight" not in seen  # it would say the same again
    if outcome is not Outcome.PASS:
        assert "2 CPUs (PREFLIGHT_CPU_REQUEST, on a node with 32)" in finding.cause
        assert "neighbours lend" in finding.cause and "request" in finding.remedy


def test_one_worker_may_run_on_half_a_cpu() -> None:
    finding = judged(effective_cpus=0.5, planned_workers=1)["limits.workers_per_cpu"]
    assert finding.outcome is Outcome.PASS


def test_the_quota_is_named_beside_the_nodes_cpus() -> None:
    seen = judged(effective_cpus=2.0, cpus_from="cgroup v2 cpu.max", online_cpus=64)
    assert "2 CPUs (cgroup v2 cpu.max, on a node with 64)" in seen["limits.workers_per_cpu"].cause


def test_observe_sets_the_facts_beside_the_plan() -> None:
    processes = making.facts().processes.model_copy(update={"pids_max": 100, "pids_current": 60})
    unit = Unit(
        subject=None, machine=host(), limits=making.limits("limits"), job=making.job(ranks=2),
        facts=making.facts(processes=processes), earlier={}, scratch=Scratch("test"),
    )  # fmt: skip
    seen = CHECK.observe(unit)
    assert (seen.planned_workers, seen.pids_free, seen.pids_need) == (8, 40, 80)
    assert seen.nofile_need == 2 * 10 + 256
    assert seen.pinned_need_gib == 0.0  # no GPU: nothing is pinned


@pytest.mark.parametrize(
    ("state", "data"), [("ok", "/data/train"), ("no_answer", None), ("empty", None)]
)
def test_observe_in_a_container(state: str, data: str | None) -> None:
    system = making.facts().system.model_copy(update={"container": "docker", "root": True})
    cpu = making.facts().cpu.model_copy(update={"bound_to": 3})
    unit = Unit(
        subject=None, machine=host(), limits=making.limits("limits"),
        job=making.job(data="/data/train", data_state=state, data_writable_at="/data"),
        facts=making.facts(system=system, cpu=cpu), earlier={}, scratch=Scratch("test"),
    )  # fmt: skip
    seen = CHECK.observe(unit)
    assert (seen.container, seen.root, seen.bound_cpus) == ("docker", True, 3)
    assert (seen.data, seen.data_writable_at) == (data, "/data")
