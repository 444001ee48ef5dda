"""What is made of the trials: advice, the remedy it joins, the call, the notes."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.checks.dataloader import CHECK
from preflight.checks.dataloader.evidence import Recommended, Trial, WhatIf
from preflight.checks.dataloader.reading import DataloaderReading
from preflight.checks.dataloader.what_if import (
    call_of,
    notes_of,
    reaches,
    remedied,
    worth_it,
)
from preflight.measure.stopping import Decision
from preflight.model import Rate
from tests import making

NOW = (2, 2, 135.0)


def rate(value: float) -> Rate:
    return Rate(
        value=value, low=0.96 * value, high=1.05 * value, unit="samples/s", blocks=8, discarded=0,
        samples=(value,),
    )  # fmt: skip


def reading(
    *trials: tuple[int, int, float], limit: float = 500.0, wanted: int | None = 3, **changes: Any
) -> DataloaderReading:
    """A loader that gave 135 samples/s with two workers, and what others gave."""
    best = max(trials, key=lambda trial: trial[2], default=None)
    what_if = WhatIf(
        trials=tuple(
            Trial(num_workers=w, prefetch_factor=p, samples_per_s=rate(value))
            for w, p, value in trials
        ),
        cpus_needed=wanted,
    )
    recommended = None
    if best is not None:
        workers, prefetch, value = best
        recommended = Recommended(
            num_workers=workers, prefetch_factor=prefetch, samples_per_s=rate(value)
        )
    seen = DataloaderReading(
        supply_samples_per_s=rate(135.0), demand_samples_per_s=limit / 0.9, demand_from="site",
        limit_samples_per_s=limit, workload=None, data=None, data_state=None, ranks=1,
        num_workers=2, batch_size=32, prefetch_factor=2, max_disturbance=0.05, effective_cpus=2.0,
        seed=1, own_cpu_share=0.2, what_if=what_if, recommended=recommended,
        decision=Decision(
            verdict="missed", clause="kept", rate=rate(135.0), blocks=8, disturbed_blocks=0
        ),
    )  # fmt: skip
    return seen.model_copy(update=changes)


def test_settings_that_are_enough_are_the_remedy() -> None:
    seen = reading(NOW, (4, 2, 279.0), (12, 2, 579.0))
    assert reaches(seen)
    assert remedied(seen, "look at what they wait for") == (
        "set loader.num_workers to 12 (579 +- 23 samples/s when tried, 135 now); "
        "limits.max_workers_per_cpu has to be at least 6 for that"
    )
    roomy = reading(NOW, (12, 2, 579.0), effective_cpus=16.0)
    assert remedied(roomy, "x").endswith("(579 +- 23 samples/s when tried, 135 now)")


def test_nothing_is_promised_within_five_percent_of_the_limit() -> None:
    close = reading(NOW, (12, 2, 510.0))
    assert not reaches(close)
    assert reaches(reading(NOW, (12, 2, 530.0)))


@pytest.mark.parametrize("other", [(4, 2, 279.0), (4, 2, 140.0), (1, 2, 80.0)])
def test_settings_that_are_not_enough_leave_the_remedy_as_it_is(other: Any) -> None:
    assert (
        remedied(reading(NOW, other), "look at what they wait for") == "look at what they wait for"
    )


@pytest.mark.parametrize(
    ("best", "now", "worth"),
    [(500.0, 490.0, True), (450.0, 135.0, True), (140.0, 135.0, False), (160.0, 135.0, True)],
)
def test_a_change_is_worth_it_where_it_is_enough_or_clearly_faster(
    best: float, now: float, worth: bool
) -> None:
    assert worth_it(rate(best), now, limit=500.0) is worth


def test_a_trial_without_an_interval_has_to_be_faster_by_half() -> None:
    few = [rate(best).model_copy(update={"low": None}) for best in (16.8, 21.0, 600.0)]
    assert [worth_it(one, 13.8, limit=500.0) for one in few] == [False, True, True]


@pytest.mark.parametrize("trials", [(), (NOW,)])
def test_without_a_trial_there_is_no_advice(trials: Any) -> None:
    seen = reading(*trials)
    assert remedied(seen, "more CPUs") == "more CPUs"
    assert remedied(seen.model_copy(update={"what_if": None}), "x") == "x"


def test_the_settings_of_a_users_loader_have_its_names() -> None:
    seen = reading(NOW, (12, 4, 579.0), dataset_kind="dataloader")
    assert remedied(seen, "x").startswith(
        "set num_workers to 12 and prefetch_factor to 4 of its DataLoader ("
    )
    in_process = reading((0, 2, 135.0), (4, 2, 579.0), num_workers=0, prefetch_factor=None)
    assert remedied(in_process, "x").startswith("set loader.num_workers to 4 (")


def test_the_finding_has_the_advice_of_the_rank_that_tried() -> None:
    tried = reading(NOW, (12, 2, 579.0), ranks=2)
    other = tried.model_copy(
        update={
            "rank": 1,
            "what_if": None,
            "recommended": None,
            "supply_samples_per_s": rate(120.0),
        }
    )
    findings = CHECK.judge([tried, other], making.limits("dataloader"))
    remedies = [str(one.remedy) for one in findings if one.id == "dataloader.supply"]
    assert len(remedies) == 2
    assert all(remedy.startswith("set loader.num_workers to 12 (") for remedy in remedies)


def test_an_undecided_rate_needs_another_run_and_no_settings() -> None:
    seen = reading(NOW, (12, 2, 579.0), decision=None)
    (finding,) = [f for f in CHECK.judge([seen], making.limits("dataloader")) if "supply" in f.id]
    assert "num_workers" not in str(finding.remedy)


def call(**changes: Any) -> str:
    usual: dict[str, Any] = {
        "batch_size": 256, "own_batches": False, "num_workers": 12, "prefetch_factor": 4,
        "pin_memory": True, "persistent_workers": True,
    }  # fmt: skip
    return call_of(**{**usual, **changes})


def test_the_call_can_be_copied() -> None:
    assert call() == (
        "DataLoader(dataset, batch_size=256, num_workers=12, prefetch_factor=4, pin_memory=True, "
        "persistent_workers=True)"
    )
    assert "batch_sampler=batch_sampler, num_workers" in call(own_batches=True, batch_size=None)
    in_process = call(num_workers=0, prefetch_factor=None, persistent_workers=False)
    assert in_process == "DataLoader(dataset, batch_size=256, num_workers=0, pin_memory=True)"


def test_notes_say_what_is_known_and_no_more() -> None:
    nothing: dict[str, Any] = {
        "persistent": True, "first_batch_s": 4.0, "not_tried": None, "copies": None,
    }  # fmt: skip
    assert notes_of(**nothing) == ()
    copies = [{"h2d_gb_per_s": {"value": 53.1}, "pageable_h2d_gb_per_s": {"value": 11.0}}]
    assert notes_of(
        persistent=False, first_batch_s=4.04, copies=copies,
        not_tried=(16, 2, "they need 0.54 GiB of /dev/shm, which has 0.25"),
    ) == (
        "persistent_workers=True saves up to 4.0 s in every epoch",
        "pin_memory=True: 53.1 GB/s to the GPU instead of 11.0",
        "16 workers with prefetch 2 were not tried: they need 0.54 GiB of /dev/shm, which has 0.25",
    )  # fmt: skip
    assert notes_of(**{**nothing, "copies": [{"h2d_gb_per_s": None}]}) == ()
