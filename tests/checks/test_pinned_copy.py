"""pinned_copy: what each reading comes to, and the steps that lead to it, on a stand-in device."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.checks.contract import Unavailable, Unit
from preflight.checks.pinned_copy import CHECK, check_memory, is_alone
from preflight.checks.pinned_copy.reading import PinnedCopyReading
from preflight.facts import Facts
from preflight.gpu_facts import PcieLink
from preflight.machine.root import Root
from preflight.measure import device as cuda
from preflight.measure.device import Copy, DeviceError
from preflight.measure.placement import ranges
from preflight.model import Rate
from preflight.outcome import Outcome
from preflight.scratch import Scratch
from tests import making

GEN5 = PcieLink(gen=5, width=16, max_gen=5, max_width=16, gpu_max_gen=5)


def rate(value: float) -> Rate:
    return Rate(
        value=value, low=0.99 * value, high=1.01 * value, unit="GB/s", blocks=10, discarded=0,
        samples=(value,) * 10,
    )  # fmt: skip


def link(gen: int | None, width: int | None, **changes: Any) -> PcieLink:
    return GEN5.model_copy(update={"gen": gen, "width": width, **changes})


HEALTHY = PinnedCopyReading(
    subject="GPU 0", h2d_gb_per_s=rate(55.0), d2h_gb_per_s=rate(54.0),
    pageable_h2d_gb_per_s=rate(9.0), looks=1, verified=True, link=GEN5,
    link_seen="during the copy", no_link_verdict=None, host_memory="near", gpu_numa_node=1,
    allowed_cpus="0-15", alone=True,
)  # fmt: skip

H2D = {"h2d_gb_per_s": rate(30.0)}
BOTH_SLOW = {**H2D, "d2h_gb_per_s": rate(30.0)}
GEN3_X8 = {"link": link(3, 8), "h2d_gb_per_s": rate(6.0), "d2h_gb_per_s": rate(6.1)}
SITE = {"min_h2d_gb_per_s": 56.0, "site_floors": ("min_h2d_gb_per_s",)}
MIG = {"subject": "GPU 0 MIG 1", "no_link_verdict": "a MIG slice shares its GPU's link"}


def judged(changes: dict[str, Any], **limits: Any) -> dict[str, Any]:
    seen = HEALTHY.model_copy(update=changes)
    findings = CHECK.judge([seen], making.limits("pinned_copy", **limits))
    assert {finding.subject for finding in findings} == {seen.subject}
    return {finding.id.removeprefix("pinned_copy."): finding for finding in findings}


def test_a_healthy_gpu_passes() -> None:
    floors = {"min_h2d_gb_per_s": 48.0, "min_d2h_gb_per_s": 48.0}
    findings = judged({}, **floors, site_floors=("min_h2d_gb_per_s",))
    assert {finding.outcome for finding in findings.values()} == {"pass"}
    assert set(findings) == set(CHECK.findings) - {"copied"}
    fraction = findings["h2d_fraction"]
    assert (fraction.observed, fraction.limit, fraction.unit) == (55.0, 40.8, "GB/s")
    assert "cuda-samples#357" in fraction.source
    assert findings["link_below_capability"].observed == "Gen5 x16"


@pytest.mark.parametrize(
    ("changes", "limits", "id", "outcome", "blame", "words"),
    [
        # Under the link's fractions, by what else is known.
        (H2D, {}, "h2d_fraction", "fail", "node", "under 85% of the 48 GB/s that a link of Gen5"),
        ({"d2h_gb_per_s": rate(30.0)}, {}, "d2h_fraction", "fail", "node", "memory is near"),
        ({"h2d_gb_per_s": rate(47.0)}, {}, "h2d_fraction", "warn", "node", "under 100% of the 48"),
        ({"d2h_gb_per_s": rate(47.0)}, {}, "d2h_fraction", "warn", "node", "under 100% of the 48"),
        (
            {**H2D, "host_memory": "far"}, {}, "h2d_fraction", "fail", "setup",
            "on another NUMA node than the GPU: allowed CPUs 0-15, GPU on node 1",
        ),
        ({**H2D, "alone": False}, {}, "h2d_fraction", "fail", "shared", "others use this GPU"),
        ({**H2D, "alone": None}, {}, "h2d_fraction", "fail", "unknown", "whether others use"),
        (
            {**H2D, "host_memory": "unknown"}, {}, "h2d_fraction", "fail", "unknown",
            "which NUMA node host memory is on",
        ),
        (
            {**H2D, "link_seen": "idle"}, {}, "h2d_fraction", "fail", "unknown",
            "the link during the copy",
        ),
        (
            {"link": link(4, 16), "h2d_gb_per_s": rate(12.0)}, {}, "h2d_fraction", "fail",
            "unknown", "below the Gen5 x16 that GPU and slot can do",
        ),
        (
            {"link": link(4, 16, max_gen=4), "h2d_gb_per_s": rate(12.0)}, {}, "h2d_fraction",
            "fail", "node", "the slot or the host is the limit: the GPU alone could do Gen5",
        ),
        (
            {"link": link(6, 16, max_gen=6), "h2d_gb_per_s": rate(30.0)}, {}, "h2d_fraction",
            "warn", "node", "under 90% of the 96",
        ),
        # Absolute floors.
        ({}, SITE, "h2d_floor", "fail", "node", "under this site's floor"),
        ({}, {**SITE, "site_floors": ()}, "h2d_floor", "warn", "node", "this GPU model's floor"),
        (
            {}, {"min_d2h_gb_per_s": 56.0, "site_floors": ("min_d2h_gb_per_s",)}, "d2h_floor",
            "fail", "node", "under this site's floor",
        ),
        ({}, {"min_d2h_gb_per_s": 56.0}, "d2h_floor", "warn", "node", "this GPU model's floor"),
        (MIG, SITE, "h2d_floor", "fail", "unknown", "a MIG slice shares"),
        # Data.
        ({"verified": False}, {}, "verified", "fail", "node", "other than they were sent"),
        ({**MIG, "verified": False}, {}, "verified", "fail", "node", "other than"),
        # Page-locking without a gain.
        ({"pageable_h2d_gb_per_s": rate(60.0)}, {}, "pageable_ratio", "warn", "unknown", "faster"),
        (
            {"pageable_h2d_gb_per_s": rate(60.0), "host_memory": "far"}, {}, "pageable_ratio",
            "warn", "setup", "on another NUMA node",
        ),
        # The link itself: two witnesses fail, one warns.
        (
            GEN3_X8, {}, "link_below_capability", "fail", "node",
            "stayed at Gen3 x8 during the copy, though GPU and slot reach Gen5 x16",
        ),
        (
            {"link": link(5, 8, slot_width=16)}, {}, "link_below_capability", "warn", "unknown",
            "the copies reach",
        ),
        (
            {"link": link(5, 8)}, {}, "link_below_capability", "warn", "unknown",
            "the slot's own width is not to be seen",
        ),
        (
            {"link": link(5, 8, slot_width=16), "h2d_gb_per_s": rate(28.0)}, {},
            "link_below_capability", "warn",
            "unknown", "the copies reach",
        ),
        (
            {**GEN3_X8, "host_memory": "far"}, {}, "link_below_capability", "warn", "unknown",
            "no second witness",
        ),
        (
            {**GEN3_X8, "alone": False}, {}, "link_below_capability", "warn", "unknown",
            "no second witness",
        ),
        (
            {"link": link(5, 16, max_gen=6)}, {}, "link_below_capability", "warn", "unknown",
            "GPU and slot reach Gen6 x16",
        ),
        # CUDA refused.
        (
            {"error": "CUDA error: uncorrectable ECC error encountered", "error_code": 214,
             "error_step": "copying"},
            {}, "copied", "fail", "node", "ECC cannot correct (while copying)",
        ),
        (
            {"error": "CUDA out of memory", "error_step": "copying"}, {}, "copied", "fail",
            "unknown", "memory was refused",
        ),
    ],
)  # fmt: skip
def test_misses(
    changes: dict[str, Any], limits: dict[str, Any], id: str, outcome: str, blame: str, words: str
) -> None:
    finding = judged(changes, **limits)[id]
    assert (finding.outcome, finding.blame) == (outcome, blame)
    assert words in finding.cause
    assert len(finding.remedy) > 20


@pytest.mark.parametrize(
    ("changes", "id", "reason"),
    [
        (MIG, "h2d_fraction", "MIG slice"),
        (MIG, "d2h_fraction", "MIG slice"),
        (MIG, "link_below_capability", "MIG slice"),
        (MIG, "pageable_ratio", "MIG slice"),
        ({"link": None, "link_seen": None}, "link_below_capability", "NVML does not tell"),
        ({"link": link(1, 16), "link_seen": "idle"}, "link_below_capability", "NVML does not tell"),
        ({"link": link(2, 16, max_gen=2)}, "h2d_fraction", "no limits for a link of Gen2 x16"),
        ({"link": link(7, 16, max_gen=7)}, "d2h_fraction", "no limits for a link of Gen7 x16"),
        ({"link": link(None, 16)}, "h2d_fraction", "no limits for a link of Gen? x16"),
    ],
)
def test_skips_say_why(changes: dict[str, Any], id: str, reason: str) -> None:
    finding = judged(changes)[id]
    assert finding.outcome == "skip"
    assert reason in finding.cause


def test_shipped_floors_do_not_judge_what_is_not_pcie() -> None:
    findings = judged(MIG, min_h2d_gb_per_s=100.0)
    assert "h2d_floor" not in findings
    assert findings["verified"].outcome == "pass"


def test_a_slow_slot_is_told_and_not_failed() -> None:
    slot = {"link": link(4, 16, max_gen=4), **{key: rate(25.0) for key in BOTH_SLOW}}
    findings = judged(slot)
    assert {finding.outcome for finding in findings.values()} == {"pass"}
    assert "Gen4 x16, though the slot" in findings["link_below_capability"].observed


def test_pageable_copies_that_were_not_made_are_not_judged() -> None:
    assert "pageable_ratio" not in judged({"pageable_h2d_gb_per_s": None})
    assert "pageable_ratio" not in judged({}, warn_pinned_over_pageable=None)


def test_each_gpu_is_judged() -> None:
    other = HEALTHY.model_copy(update={"subject": "GPU 1", **BOTH_SLOW})
    findings = CHECK.judge([HEALTHY, other], making.limits("pinned_copy"))
    missed = {(finding.subject, finding.id) for finding in findings if finding.outcome == "fail"}
    assert missed == {("GPU 1", "pinned_copy.h2d_fraction"), ("GPU 1", "pinned_copy.d2h_fraction")}


class StandIn:
    """A device that copies at given rates, faster from the second look on where told so."""

    def __init__(self, later: dict[Copy, float] | None = None, **gb_per_s: float) -> None:
        self._gb_per_s: dict[Any, float] = {
            "pinned_h2d": 55.0, "pinned_d2h": 54.0, "pageable_h2d": 9.0, **gb_per_s
        }  # fmt: skip
        self._later = later or {}
        self.verified = 0

    def arch_list(self) -> tuple[str, ...]:
        return ()

    def kernel(self, numbers: int) -> float:
        return 0.0

    def copy_seconds(self, copy: Copy, piece_bytes: int, pieces: int) -> list[float]:
        faster = self._later.get(copy) if self.verified else None
        return [piece_bytes / (faster or self._gb_per_s[copy]) / 1e9] * pieces

    def verify(self, piece_bytes: int) -> bool:
        self.verified += 1
        return True


@pytest.fixture
def observed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[Any, list[str], list[Any]]]:
    """Run `observe` on a device; gives reading, progress and partial readings."""
    # Two nodes whose CPUs this machine has all of: nothing is bound, and host memory is near.
    for node, cpus in ((0, ranges(os.sched_getaffinity(0))), (1, "60000")):
        where = tmp_path / f"sys/devices/system/node/node{node}"
        where.mkdir(parents=True)
        (where / "cpulist").write_text(cpus)

    def run(
        device: Any, during: PcieLink | None = GEN5, facts: Facts | None = None, **limits: Any
    ) -> tuple[Any, list[str], list[Any]]:
        said: list[str] = []
        emitted: list[Any] = []

        def opened() -> Any:
            if isinstance(device, Exception):
                raise device
            return device

        monkeypatch.setattr(cuda, "open_device", opened)
        monkeypatch.setattr(cuda, "load", lambda: said.append("loaded"))
        nvml = "preflight.checks.pinned_copy.copying.open_link"
        monkeypatch.setattr(nvml, lambda uuid: lambda: during)
        monkeypatch.setattr("preflight.measure.copies.REST_S", 0.0)
        facts = facts or making.gpu_facts()
        subjects = [device.subject for device in facts.cuda_devices()]
        unit = Unit(
            subject=subjects[0] if subjects else None, machine=Root(str(tmp_path)),
            limits=making.limits("pinned_copy", **limits), job=making.job(), facts=facts,
            earlier={}, scratch=Scratch("test"), emit=emitted.append, progress=said.append,
            ready=lambda: said.append("ready"),
        )  # fmt: skip
        return CHECK.observe(unit), said, emitted

    return run


def test_observe_copies_both_ways_and_reports_on_the_way(observed: Any) -> None:
    seen, said, emitted = observed(StandIn())
    assert (seen.h2d_gb_per_s.value, seen.d2h_gb_per_s.value) == (55.0, 54.0)
    assert seen.pageable_h2d_gb_per_s.value == 9.0
    assert (seen.looks, seen.verified, seen.link) == (1, True, GEN5)
    assert (seen.host_memory, seen.gpu_numa_node, seen.alone) == ("near", 0, True)
    assert said.index("loaded") < said.index("ready") < said.index("starting CUDA (cuInit)")
    assert emitted[0].h2d_gb_per_s and emitted[0].d2h_gb_per_s is None
    assert emitted[-1] == seen


def test_a_slow_copy_is_measured_twice_and_pooled(
    observed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[Any] = []
    monkeypatch.setattr("preflight.measure.copies.Copies.rest", lambda self: rests.append(1))
    seen, _, _ = observed(StandIn(later={"pinned_h2d": 55.0}, pinned_h2d=30.0))
    assert (seen.looks, len(rests)) == (2, 1)
    assert seen.h2d_gb_per_s.blocks > observed(StandIn())[0].h2d_gb_per_s.blocks
    assert seen.h2d_gb_per_s.samples[0] == 30.0 and seen.h2d_gb_per_s.samples[-1] == 55.0


def test_without_a_bound_pageable_copies_are_not_made(observed: Any) -> None:
    seen, said, _ = observed(StandIn(), warn_pinned_over_pageable=None)
    assert seen.pageable_h2d_gb_per_s is None
    assert not any("pageable" in text for text in said)


def test_an_idle_link_stands_in_where_nvml_does_not_answer(observed: Any) -> None:
    seen, _, _ = observed(StandIn(), during=None)
    assert (seen.link, seen.link_seen) == (GEN5, "idle")
    nothing = link(None, None, max_gen=None)
    facts = making.gpu_facts(making.gpu(link=nothing))
    seen, _, _ = observed(StandIn(), during=None, facts=facts)
    assert (seen.link, seen.link_seen) == (None, None)


def test_what_cuda_refuses_is_a_reading(observed: Any) -> None:
    seen, _, _ = observed(DeviceError("CUDA error: unspecified launch failure\nmore", 719))
    assert (seen.error_code, seen.error_step) == (719, "starting CUDA (cuInit)")
    assert seen.h2d_gb_per_s is None
    assert CHECK.judge([seen], making.limits("pinned_copy"))[0].id == "pinned_copy.copied"


def test_without_a_device_there_is_nothing_to_measure(observed: Any) -> None:
    hidden = making.gpu_facts(environment={"CUDA_VISIBLE_DEVICES": ""})
    with pytest.raises(Unavailable, match="no device that CUDA may use; look at CUDA_VISIBLE"):
        observed(StandIn(), facts=hidden)


@pytest.mark.parametrize(
    ("changes", "node", "alone"),
    [
        ({}, "exclusive", True),
        ({}, "shared", False),
        ({}, None, None),
        ({"processes": (17,)}, "exclusive", False),
        ({"processes": None}, "exclusive", None),
        ({"processes": None}, "shared", False),
    ],
)
def test_who_else_is_there(changes: dict[str, Any], node: str | None, alone: bool | None) -> None:
    facts = making.gpu_facts(making.gpu(**changes), node=node)
    assert is_alone(facts.cuda_devices()[0], facts, shared=False) is alone


def test_others_may_hide_where_they_are_allowed_or_sit_on_another_gpu() -> None:
    facts = making.gpu_facts()
    assert is_alone(facts.cuda_devices()[0], facts, shared=True) is None
    beside = making.gpu_facts(making.gpu(0), making.gpu(1, processes=(17,)))
    assert is_alone(beside.cuda_devices()[0], beside, shared=False) is False


def test_processes_that_would_not_fit_are_not_started() -> None:
    eight = making.gpu_facts(*(making.gpu(index) for index in range(8)))
    held = making.limits("pinned_copy")
    check_memory(held, eight)
    small = eight.memory.model_copy(update={"headroom_gib": 6.0})
    with pytest.raises(Unavailable, match=r"8 processes x 0.6 GiB \+ 0.50 GiB.*docker run --mem"):
        check_memory(held, eight.model_copy(update={"memory": small}))


def changed(**fields: Any) -> PinnedCopyReading:
    return HEALTHY.model_copy(update=fields)


def test_a_link_that_nobody_tells_is_a_warning_with_the_rate() -> None:
    (found,) = [
        f
        for f in CHECK.judge([changed(link=None, link_seen=None)], making.limits("pinned_copy"))
        if f.id == "pinned_copy.h2d_fraction"
    ]
    assert (found.outcome, found.observed, found.unit) == (Outcome.WARN, 55.0, "GB/s")


def test_a_median_that_hides_crawling_pieces_is_a_warning() -> None:
    def steady(low: float) -> Any:
        crawling = rate(55.0).model_copy(update={"low": low})
        found = CHECK.judge([changed(h2d_gb_per_s=crawling)], making.limits("pinned_copy"))
        return next(finding for finding in found if finding.id == "pinned_copy.steady")

    assert steady(54.0).outcome is Outcome.PASS
    assert (steady(2.0).outcome, steady(2.0).observed) == (Outcome.WARN, 2.0)
