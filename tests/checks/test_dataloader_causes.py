"""The table of causes: each row from evidence that must give it, and from near misses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.checks.dataloader import CHECK, cause, signs
from preflight.checks.dataloader.case import Case
from preflight.checks.dataloader.causes import CAUSES, find
from preflight.checks.dataloader.evidence import Evidence, Recommended, Trial, WhatIf
from preflight.checks.dataloader.reading import DataloaderReading
from preflight.job import DataOn
from preflight.outcome import Blame
from tests import making
from tests.checks.test_dataloader import decision, rate, reading

QUIET = {
    "getitem_share": 0.98, "getitem_cpu_share": 0.02, "collate_share": 0.01,
    "collate_cpu_share": 0.01, "worker_cpu_share": 0.04, "worker_delay_share": 0.01,
    "main_cpu_share": 0.05, "disk_wait_share": 0.0, "read_bytes_per_sample": 0.0,
    "disk_bytes_per_sample": 0.0, "major_faults_per_s": 0.0, "cpu_weight": 100, "looks": 160,
}  # fmt: skip
BUSY = {
    "getitem_share": 0.95, "getitem_cpu_share": 0.97, "worker_cpu_share": 0.96,
    "worker_delay_share": 0.02,
}  # fmt: skip
CLOSE = {"decision": decision("close", 2500.0)}
NFS = DataOn(point="/data", fs_type="nfs4", source="filer:/x", kind="network")
DISK = DataOn(point="/data", fs_type="ext4", source="/dev/sda", kind="local")


def seen(evidence: dict[str, Any] | None = None, **changes: Any) -> DataloaderReading:
    """A miss of eight workers on eight CPUs that stood idle, but for what is said."""
    waits = dict.fromkeys(("socket", "lock", "sleep", "poll", "pipe", "disk", "other", "work"), 0.0)
    told = {**QUIET, **(evidence or {})}
    told["waits"] = {**waits, **told.get("waits", {})}
    base: dict[str, Any] = {
        "own_cpu_share": 0.05, "node_cpus": 64, "evidence": Evidence(**told), "value": 1000.0,
    }  # fmt: skip
    merged = {**base, **changes}
    return reading("missed", merged.pop("value"), **merged)


def tried(ratio: float, workers: int = 16, prefetch: int = 2) -> dict[str, Any]:
    trial = Trial(num_workers=workers, prefetch_factor=prefetch, samples_per_s=rate(1000 * ratio))
    return {"what_if": WhatIf(trials=(trial,)), "prefetch_factor": 2}


def waiting(**waits: float) -> dict[str, Any]:
    return {"waits": waits}


TABLE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("cpu_quota", BUSY, {"own_cpu_share": 0.97, "quota_cpus": 8.0}),
    ("cpu_quota", {}, {"own_cpu_share": 0.5, "quota_cpus": 8.0, "throttled_percent": 60.0}),
    ("cpus", BUSY, {"own_cpu_share": 0.97}),
    ("cpus", {**BUSY, "worker_cpu_share": 0.6, "worker_delay_share": 0.39}, {"own_cpu_share": 0.9}),
    ("cpus", BUSY, {"own_cpu_share": 0.94, "quota_cpus": 8.0, "throttled_percent": 9.0}),
    ("helper_threads", {"getitem_cpu_share": 0.05, "worker_cpu_share": 0.95},
     {"own_cpu_share": 0.97}),
    ("neighbours", BUSY, {"own_cpu_share": 0.5, "disturbed_share": 0.4, **CLOSE}),
    ("cpu_weight", {**BUSY, "cpu_weight": 10}, {"disturbed_share": 0.4, **CLOSE}),
    ("steal", BUSY, {"own_cpu_share": 0.7, "steal_percent": 30.0}),
    ("few_workers", BUSY, {"own_cpu_share": 0.25, "num_workers": 2}),
    ("too_many_workers", BUSY, {"own_cpu_share": 0.97, **tried(1.3, workers=4)}),
    ("transport", {"getitem_share": 0.05, "collate_share": 0.9, "worker_cpu_share": 0.8}, {}),
    ("transport", {"getitem_share": 0.05, "collate_share": 0.02, "worker_cpu_share": 0.7}, {}),
    ("main_process", {"getitem_share": 0.2, "collate_share": 0.1}, {}),
    ("pin_memory", {"getitem_share": 0.2, "collate_share": 0.1}, {"pin_memory": True}),
    ("storage", {**waiting(disk=0.7), "disk_bytes_per_sample": 1e5}, {"data_on": DISK}),
    ("storage", {**waiting(disk=0.7), "disk_bytes_per_sample": 1e5}, tried(1.16)),
    ("storage", {"major_faults_per_s": 25000.0, "disk_bytes_per_sample": 1e5}, {}),
    ("storage", {"disk_wait_share": 0.7, "waits": {}, "disk_bytes_per_sample": None}, {}),
    ("storage_unaccounted", waiting(disk=0.7), {}),
    ("storage_unaccounted", {**waiting(disk=0.7), "disk_bytes_per_sample": 1e5}, {"data_on": NFS}),
    ("remote_latency", waiting(socket=0.9), tried(1.99)),
    ("remote_latency", waiting(poll=0.9), tried(1.7)),
    ("remote_saturated", waiting(socket=0.9), tried(0.97)),
    ("remote", waiting(socket=0.9), {}),
    ("remote", waiting(socket=0.9), tried(1.4)),
    ("lock", waiting(lock=0.41), tried(0.88)),
    ("lock", waiting(lock=0.48, sleep=0.49), tried(0.94)),
    ("lock", waiting(lock=0.5, disk=0.5), {}),
    ("lock", waiting(lock=0.48, sleep=0.49), tried(1.4)),
    ("latency", waiting(sleep=0.95), tried(1.98)),
    ("latency", waiting(sleep=0.95), {}),
    ("latency", waiting(lock=0.9), tried(1.9)),  # on threads of its own that do the waiting
    ("tiny_samples", {"collate_share": 0.7}, {"value": 25_000.0}),
    ("unknown", {"getitem_share": 0.6, "collate_share": 0.1}, {}),
    ("unknown", waiting(sleep=0.95), tried(1.0)),
]  # fmt: skip


@pytest.mark.parametrize(("id", "evidence", "changes"), TABLE)
def test_the_evidence_names_its_cause(
    id: str, evidence: dict[str, Any], changes: dict[str, Any]
) -> None:
    miss = cause.of_missing(seen(evidence, **changes))
    assert miss.cause_id == id
    assert miss.cause and miss.remedy and "None" not in miss.cause
    assert miss.blame is not Blame.NODE


NEAR_MISSES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("cpu_quota", BUSY, {"own_cpu_share": 0.97}),  # no quota
    ("cpu_quota", {}, {"own_cpu_share": 0.5, "quota_cpus": 8.0, "throttled_percent": 9.0}),
    ("cpus", BUSY, {"own_cpu_share": 0.8, "num_workers": 7}),  # a CPU is left without a worker
    ("helper_threads", BUSY, {"own_cpu_share": 0.97}),  # the loading thread did it itself
    ("helper_threads", {"getitem_cpu_share": 0.05, "worker_cpu_share": 0.95},
     {"own_cpu_share": 0.3, "num_workers": 2}),  # CPUs are left for the threads
    ("neighbours", BUSY, {"disturbed_share": 0.04, **CLOSE}),
    ("neighbours", BUSY, {"own_cpu_share": 0.6, "disturbed_share": 0.4}),  # decided without them
    ("cpu_weight", {"cpu_weight": 10}, {"disturbed_share": 0.4}),  # a miss is one without them
    ("cpu_weight", {"cpu_weight": 10}, CLOSE),  # nobody else wanted the CPUs
    ("steal", BUSY, {"own_cpu_share": 0.3, "steal_percent": 30.0}),  # CPUs were idle
    ("too_many_workers", {}, tried(1.05, workers=4)),
    ("too_many_workers", {}, tried(1.3, workers=4, prefetch=8)),  # another prefetch did it
    ("transport", {"getitem_share": 0.6, "collate_share": 0.4}, {}),
    ("main_process", {"getitem_share": 0.6, "collate_share": 0.1}, {}),
    ("main_process", {"getitem_share": 0.2, "collate_share": None}, {}),  # not known
    ("storage", {**waiting(disk=0.1), "disk_bytes_per_sample": 1e5}, {}),
    ("storage", waiting(disk=0.7), {}),  # the disk gave nothing
    ("storage_unaccounted", {**waiting(disk=0.7), "disk_bytes_per_sample": None}, {}),
    ("remote_latency", waiting(socket=0.9), {}),  # not tried
    ("remote_saturated", waiting(socket=0.9), {}),
    ("remote_latency", waiting(socket=0.9), tried(1.99, prefetch=8)),
    ("lock", waiting(lock=0.9), {"num_workers": 1}),  # nobody to wait for
    ("lock", waiting(lock=0.9), tried(1.9)),
    ("lock", waiting(lock=0.1, sleep=0.8), tried(1.0)),
    ("latency", waiting(sleep=0.9), tried(1.0)),
    ("slow_rank", {}, {}),  # there is no other
    ("tiny_samples", {"collate_share": 0.7}, {"value": 15_000.0}),
]  # fmt: skip


@pytest.mark.parametrize(("id", "evidence", "changes"), NEAR_MISSES)
def test_a_near_miss_names_another_cause(
    id: str, evidence: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert cause.of_missing(seen(evidence, **changes)).cause_id != id


def test_every_row_of_the_table_is_reached() -> None:
    assert {row.id for row in CAUSES} == {id for id, _, _ in TABLE} | {"slow_rank"}


def test_explain_tells_every_row_in_the_order_of_the_table() -> None:
    assert list(CHECK.causes) == list(dict.fromkeys(row.id for row in CAUSES))


def test_a_rank_far_behind_the_others_is_told_so() -> None:
    fast = [reading("reached", 2600.0, rank=rank, ranks=3) for rank in (0, 1)]
    slow = seen(waiting(sleep=0.9), rank=2, ranks=3)
    finding = judged([*fast, slow])[-1]
    assert (finding.cause_id, finding.blame) == ("slow_rank", "unknown")
    assert "rank 2 gave 1,000 samples/s where the others gave 2,600" in finding.cause
    near = slow.model_copy(update={"supply_samples_per_s": rate(1900.0)})
    assert judged([*fast, near])[-1].cause_id == "latency"
    all_slow = [seen(rank=rank, ranks=2, value=value) for rank, value in enumerate((400.0, 900.0))]
    assert {f.cause_id for f in judged(all_slow)} == {"unknown"}


def judged(readings: list[DataloaderReading]) -> list[Any]:
    findings = CHECK.judge(readings, making.limits("dataloader"))
    return [finding for finding in findings if finding.id == "dataloader.supply"]


def test_another_rank_tries_for_all() -> None:
    readings = [
        seen(waiting(socket=0.9), rank=0, ranks=2, value=1100.0, **tried(2.2)),
        seen(waiting(socket=0.9), rank=1, ranks=2, prefetch_factor=2),
    ]
    assert {finding.cause_id for finding in judged(readings)} == {"remote_latency"}


@pytest.mark.parametrize(
    ("workers", "gain", "scaling"),
    [(16, 1.5, 1.5), (32, 2.25, 1.5), (12, 1.4, 1.777), (9, 9, None)],
)
def test_scaling_is_that_of_twice_the_workers(
    workers: int, gain: float, scaling: float | None
) -> None:
    case = Case(seen(**tried(gain, workers=workers)), (seen(**tried(gain, workers=workers)),))
    assert case.scaling == (None if scaling is None else pytest.approx(scaling, abs=0.01))


def test_of_several_trials_the_one_that_gained_most_says_how_it_scales() -> None:
    trials = [tried(*one)["what_if"].trials[0] for one in ((1.5, 16), (7.5, 64), (8.0, 128))]
    reading = seen(what_if=WhatIf(trials=tuple(trials)), prefetch_factor=2)
    case = Case(reading, (reading,))
    assert case.scaling == pytest.approx(1.957, abs=0.001)
    assert case.more == trials[1]


@pytest.mark.parametrize(
    ("id", "evidence", "changes", "remedy"),
    [
        ("cpu_quota", BUSY,
         {"own_cpu_share": 0.97, "quota_cpus": 2.0, "effective_cpus": 2.0, "value": 811.9,
          "num_workers": 8},
         "give the container at least 7 CPUs (it has a quota of 2 on a 64-CPU node; "
         "2,790 / 811.9 x 2 = 6.9)"),
        ("cpus", BUSY, {"own_cpu_share": 0.97, "node_cpus": 8, "num_workers": 30},
         "run on a node with at least 23 CPUs (2,790 / 1,000.0 x 8 = 22.3; this one has 8)"),
        ("latency", waiting(sleep=0.95), tried(1.98),
         "set loader.num_workers to 23; "
         "limits.max_workers_per_cpu has to be at least 2.88 for that"),
        ("latency", waiting(sleep=0.95), {"value": 2000.0, "effective_cpus": 16.0},
         "try to set loader.num_workers to 12"),
        ("latency", waiting(sleep=0.95), {"value": 20.0, "effective_cpus": 32.0},
         "try to set loader.num_workers to 32"),
        ("cpus", {**BUSY, "slow_line": "/job/data.py:7"}, {"own_cpu_share": 0.97},
         "give the container 23 CPUs (2,790 / 1,000.0 x 8 = 22.3) and set "
         "loader.num_workers to 23; or make that line cheaper"),
        ("latency", waiting(sleep=0.6), {**tried(1.98), "own_cpu_share": 0.5},
         "set loader.num_workers to 23 and give the container 12 CPUs "
         "(2,790 / 1,000.0 x 4 = 11.2)"),
        ("few_workers", BUSY, {"own_cpu_share": 0.5, "num_workers": 4, "value": 1300.0},
         "set loader.num_workers to 8"),
        ("too_many_workers", BUSY, {"own_cpu_share": 0.97, **tried(1.3, workers=4)},
         "set loader.num_workers to 4 or fewer"),
        ("too_many_workers", BUSY, {"own_cpu_share": 0.97, **tried(2.8, workers=4)},
         "set loader.num_workers to 4"),
        ("too_many_workers", BUSY, {"own_cpu_share": 0.97, **tried(1.3, workers=1)},
         "set loader.num_workers to 1"),
    ],
)  # fmt: skip
def test_remedies_come_with_their_arithmetic(
    id: str, evidence: dict[str, Any], changes: dict[str, Any], remedy: str
) -> None:
    miss = cause.of_missing(seen(evidence, **changes))
    assert (miss.cause_id, miss.remedy) == (id, remedy)


def test_the_best_that_was_tried_goes_before_the_arithmetic() -> None:
    best = Recommended(num_workers=12, prefetch_factor=2, samples_per_s=rate(2600.0))
    told = cause.of_missing(seen(waiting(sleep=0.95), **tried(1.98), recommended=best))
    assert told.remedy.startswith("set loader.num_workers to 12; limits.")


def test_the_line_and_what_the_data_lie_on_are_said() -> None:
    locked = cause.of_missing(seen({**waiting(lock=0.5), "slow_line": "/job/data.py:7"}))
    assert "most often in /job/data.py:7" in locked.cause
    remote = cause.of_missing(seen(waiting(disk=0.9), data_on=NFS))
    assert "nfs4 at /data" in remote.cause and remote.blame == "shared"


def test_what_is_not_known_is_shown_and_not_made_up() -> None:
    hidden = seen(own_cpu_share=0.3).model_copy(update={"evidence": None})
    miss = cause.of_missing(hidden)
    assert miss.cause_id == "unknown" and miss.blame == "unknown"
    assert miss.cause == "the workers waited: they used only 30% of 8 CPUs"
    shown = cause.of_missing(seen({"getitem_share": 0.6, "collate_share": 0.1}))
    assert "60% in the data set, 10% in collate, 30% with nothing to do" in shown.cause


def test_a_low_weight_turns_neighbours_into_a_matter_of_the_setup() -> None:
    close = reading(
        "close", 2500.0, disturbed_share=0.4, evidence=Evidence(**{**QUIET, "cpu_weight": 2})
    )
    miss = cause.of_close(close)
    assert (miss.cause_id, miss.blame) == ("cpu_weight", "setup")
    assert "resources.requests.cpu" in miss.remedy
    assert cause.of_close(reading("close", 2500.0, disturbed_share=0.4)).cause_id == "neighbours"


shares = st.none() | st.floats(0, 4)
counts = st.none() | st.floats(0, 1e9)
evidences = st.none() | st.builds(
    Evidence,
    **dict.fromkeys(
        ("getitem_share", "getitem_cpu_share", "collate_share", "collate_cpu_share",
         "worker_cpu_share", "worker_delay_share", "main_cpu_share", "disk_wait_share"), shares,
    ),
    read_bytes_per_sample=counts, disk_bytes_per_sample=counts, major_faults_per_s=counts,
    waits=st.dictionaries(
        st.sampled_from(["socket", "lock", "sleep", "poll", "pipe", "disk", "other", "work"]),
        st.floats(0, 1),
    ),
    cpu_weight=st.none() | st.integers(1, 10000), slow_line=st.none() | st.just("a.py:1"),
)  # fmt: skip
rates = st.floats(0, 1e6).map(rate)
trials = st.builds(
    Trial, num_workers=st.integers(0, 64), prefetch_factor=st.none() | st.integers(1, 3),
    samples_per_s=rates,
)  # fmt: skip
what_ifs = st.none() | st.builds(
    WhatIf, trials=st.lists(trials, max_size=4).map(tuple), cached_samples_per_s=counts
)
recommendations = st.none() | st.builds(
    Recommended, num_workers=st.integers(0, 64), prefetch_factor=st.integers(1, 8),
    samples_per_s=rates,
)  # fmt: skip
readings = st.builds(
    lambda **changes: reading("missed", 1.0, **changes),
    supply_samples_per_s=st.none() | rates, rank=st.integers(0, 3), ranks=st.integers(1, 4),
    num_workers=st.integers(0, 64), effective_cpus=st.floats(0.01, 256), evidence=evidences,
    own_cpu_share=shares, disturbed_share=st.none() | st.floats(0, 1), what_if=what_ifs,
    recommended=recommendations,
    steal_percent=st.none() | st.floats(0, 100), quota_cpus=st.none() | st.floats(0.01, 64),
    throttled_percent=st.none() | st.floats(0, 100), pin_memory=st.none() | st.booleans(),
    node_cpus=st.none() | st.integers(1, 256), data_on=st.sampled_from([None, NFS, DISK]),
    limit_samples_per_s=st.floats(0.01, 1e6), prefetch_factor=st.none() | st.integers(1, 3),
    bound_cpus=st.none() | st.integers(1, 8),
    dataset_kind=st.sampled_from([None, "dataset", "dataloader"]),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(seen=readings, others=st.lists(readings, max_size=2))
def test_any_reading_has_one_cause_and_none_raises(
    seen: DataloaderReading, others: list[DataloaderReading]
) -> None:
    case = Case(seen, (seen, *others))
    row = find(case)
    assert sum(row is other for other in CAUSES) == 1
    for ask in (cause.of_missing, cause.of_close, cause.of_undecided):
        miss = ask(seen, (seen, *others))
        assert miss.cause and miss.remedy
        assert miss.blame is not Blame.NODE
        assert "nan" not in miss.cause + miss.remedy and "inf " not in miss.cause + miss.remedy
    for row in CAUSES:  # also where it does not hold: a sentence never raises
        assert row.sentence(case) and row.remedy(case)
    assert signs.scales(case) is False or signs.does_not(case) is False
