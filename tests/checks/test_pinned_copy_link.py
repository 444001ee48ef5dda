"""pinned_copy: what a PCIe link should carry, held against copies that were published."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.checks.pinned_copy.link import (
    best_link_fails_under,
    fail_under,
    measure_again,
    model_gb_per_s,
    no_verdict,
)
from preflight.checks.pinned_copy.reading import PinnedCopyReading
from preflight.gpu_facts import PcieLink
from tests import making
from tests.checks.test_pinned_copy import HEALTHY, rate

LIMITS = making.limits("pinned_copy")

# Generation, lanes, line rate one way, NCCL's model, slowest and fastest usual pinned copy (GB/s).
PUBLISHED = [
    (3, 8, 7.9, 6, 5.8, 6.1),
    (3, 16, 15.75, 12, 11.3, 13.5),
    (4, 8, 15.75, 12, None, None),
    (4, 16, 31.5, 24, 23.6, 26.4),
    (5, 8, 31.5, 24, None, None),
    (5, 16, 63, 48, 53.5, 57.2),
    (6, 16, 121, 96, None, None),
]


@pytest.mark.parametrize(("gen", "lanes", "line", "model", "slowest", "fastest"), PUBLISHED)
def test_the_model_lies_between_copies_and_line_rate(
    gen: int, lanes: int, line: float, model: float, slowest: float | None, fastest: float | None
) -> None:
    assert model_gb_per_s(gen, lanes, LIMITS) == model
    assert model < line
    link = PcieLink(gen=gen, width=lanes, max_gen=gen, max_width=lanes, gpu_max_gen=gen)
    bound = fail_under(link, LIMITS)
    if gen == 6:
        assert bound is None, "Gen6 only warns"
        return
    assert bound is not None and bound < model
    if slowest is not None and fastest is not None:
        assert bound < slowest, "a usual copy must not fail"
        warn = LIMITS.warn_fraction_of_link_by_gen[str(gen)] * model
        assert warn <= slowest, "nor warn"
        assert fastest < line
    # A link of half the width or of the generation below is told apart by the copy alone.
    assert model_gb_per_s(gen, lanes // 2, LIMITS) < bound
    assert model_gb_per_s(gen - 1, lanes, LIMITS) < bound


@pytest.mark.parametrize(("gen", "width"), [(None, 16), (5, None), (5, 0), (7, 16), (0, 16)])
def test_an_unknown_link_has_no_model(gen: int | None, width: int | None) -> None:
    assert model_gb_per_s(gen, width, LIMITS) is None
    link = PcieLink(gen=gen, width=width, max_gen=gen, max_width=width, gpu_max_gen=None)
    assert fail_under(link, LIMITS) is None
    assert best_link_fails_under(link, LIMITS) is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"virtualization": None, "c2c": None, "integrated": None, "mig": None}, None),
        ({"c2c": True}, "NVLink-C2C"),
        ({"integrated": True}, "shares the host's memory"),
        ({"virtualization": "vgpu"}, "virtual GPU"),
        ({"mig": True, "mig_slices": ("MIG-1",)}, "MIG slice"),
    ],
)
def test_devices_whose_copies_are_not_pcie_s(changes: dict[str, Any], word: str | None) -> None:
    facts = making.gpu_facts(making.gpu(**changes))
    reason = no_verdict(facts.cuda_devices()[0], facts)
    assert reason is None if word is None else word in (reason or "")


def test_wsl_has_no_pcie_verdict() -> None:
    host = making.gpu_facts().gpu_host.model_copy(update={"device_nodes": ("/dev/dxg",)})
    facts = making.gpu_facts(gpu_host=host)
    assert "WSL" in (no_verdict(facts.cuda_devices()[0], facts) or "")


def seen(**changes: Any) -> PinnedCopyReading:
    return HEALTHY.model_copy(update=changes)


GEN3 = PcieLink(gen=3, width=16, max_gen=5, max_width=16, gpu_max_gen=5)
C2C = {"no_link_verdict": "C2C"}


@pytest.mark.parametrize(
    ("changes", "limits", "again"),
    [
        ({}, {}, False),
        ({"h2d_gb_per_s": rate(40.0)}, {}, True),  # fails
        ({"h2d_gb_per_s": rate(44.0)}, {}, True),  # within a tenth of 40.8
        ({"d2h_gb_per_s": rate(44.8)}, {}, True),
        ({"d2h_gb_per_s": rate(45.0)}, {}, False),
        # Far above what Gen3 fails under, but one of two witnesses against a Gen5 link.
        ({"link": GEN3, "h2d_gb_per_s": rate(13.0), "d2h_gb_per_s": rate(13.0)}, {}, True),
        ({"link": GEN3, "link_seen": "idle", "d2h_gb_per_s": rate(13.0)}, {}, False),
        ({"link": None, "link_seen": None, "h2d_gb_per_s": rate(1.0)}, {}, False),
        ({}, {"min_h2d_gb_per_s": 52.0, "site_floors": ("min_h2d_gb_per_s",)}, True),
        ({}, {"min_d2h_gb_per_s": 52.0, "site_floors": ("min_h2d_gb_per_s",)}, False),  # warns
        ({}, {"min_h2d_gb_per_s": 40.0, "site_floors": ("min_h2d_gb_per_s",)}, False),
        ({**C2C, "h2d_gb_per_s": rate(1.0)}, {}, False),
        (C2C, {"min_h2d_gb_per_s": 300.0, "site_floors": ("min_h2d_gb_per_s",)}, True),
    ],
)
def test_only_what_might_fail_is_measured_again(
    changes: dict[str, Any], limits: dict[str, Any], again: bool
) -> None:
    assert measure_again(seen(**changes), making.limits("pinned_copy", **limits)) is again
