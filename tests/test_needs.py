"""A needed check that did not pass: it stops what needs it, or only the GPU it failed on."""

from __future__ import annotations

from typing import Any

import pytest

from preflight import needs
from preflight.checks.contract import Limits
from preflight.model import Finding, Result
from preflight.outcome import Outcome
from preflight.plan import Planned, PlannedUnit
from tests import making
from tests.test_runner import check

EIGHT = tuple(PlannedUnit(f"GPU {number}", f"GPU-{number}") for number in range(8))


def need(*subjects: str | None, outcome: Outcome = Outcome.FAIL) -> dict[str, Result]:
    """What became of `driver`: one finding of that outcome for each subject, and a pass."""
    findings = [Finding(id="driver.kernel", outcome=Outcome.PASS, subject="GPU 7")]
    findings += [Finding(id="driver.kernel", outcome=outcome, subject=name) for name in subjects]
    worst = outcome if subjects else Outcome.PASS
    made = Result(
        check="driver", outcome=worst, required=True, duration_s=1.0, findings=tuple(findings)
    )
    return {"driver": made}


def blocked(done: dict[str, Result], *units: PlannedUnit) -> Any:
    dependent = Planned(
        check=check("copy", needs=("driver",)), limits=Limits(required=True, timeout_s=1.0),
        skip=None, units=units or (PlannedUnit(),),
    )  # fmt: skip
    return needs.blocked(dependent, done)


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.WARN, Outcome.SKIP])
def test_what_passed_warned_or_did_not_apply_blocks_nobody(outcome: Outcome) -> None:
    assert blocked(need(None, outcome=outcome), *EIGHT) is None


def test_a_need_that_was_not_selected_blocks_nobody() -> None:
    assert blocked({}, *EIGHT) is None


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ERROR])
@pytest.mark.parametrize("subjects", [(None,), ("/dev/shm",), ("GPU 3", None)])
def test_a_miss_of_the_whole_node_blocks_all(subjects: Any, outcome: Outcome) -> None:
    found = blocked(need(*subjects, outcome=outcome), *EIGHT)
    assert (found.by, found.units) == ("driver", ())
    assert found.reason == "needs driver, which did not pass"


def test_a_miss_on_one_gpu_blocks_that_gpu_alone() -> None:
    found = blocked(need("GPU 3"), *EIGHT)
    assert [unit.subject for unit in found.units] == [f"GPU {n}" for n in (0, 1, 2, 4, 5, 6, 7)]
    assert found.skipped == {"GPU 3": "driver"}


def test_with_every_gpu_missed_nothing_is_left() -> None:
    found = blocked(need(*(unit.subject for unit in EIGHT)), *EIGHT)
    assert found.units == ()


def test_a_check_of_the_whole_node_still_looks_when_one_gpu_failed() -> None:
    assert blocked(need("GPU 3")) is None


def test_a_miss_on_a_whole_gpu_blocks_its_mig_slices() -> None:
    slices = [PlannedUnit(f"GPU {gpu} MIG {place}") for gpu in (1, 10) for place in (0, 1)]
    found = blocked(need("GPU 1"), *slices)
    assert [unit.subject for unit in found.units] == ["GPU 10 MIG 0", "GPU 10 MIG 1"]


def test_each_gpu_is_told_which_check_it_did_not_pass() -> None:
    done = {"driver": need("GPU 3")["driver"], "gpus": need("GPU 5")["driver"]}
    dependent = Planned(
        check=check("copy", needs=("driver", "gpus")), skip=None, units=EIGHT,
        limits=Limits(required=True, timeout_s=1.0),
    )  # fmt: skip
    found = needs.blocked(dependent, done)
    assert found is not None and found.skipped == {"GPU 3": "driver", "GPU 5": "gpus"}


def test_a_skipped_gpu_is_a_finding_of_its_own() -> None:
    done = need()["driver"]
    result = needs.with_skipped(done, blocked(need("GPU 3"), *EIGHT))
    last = result.findings[-1]
    assert (last.id, last.outcome, last.subject) == ("driver.applies", Outcome.SKIP, "GPU 3")
    assert result.outcome is done.outcome


def test_a_rank_gets_a_device_that_no_check_has_failed_on() -> None:
    devices = making.gpu_facts(*map(making.gpu, range(3))).cuda_devices()
    rank = PlannedUnit("rank 0", devices[0].cuda_id)

    def given(*bad: str) -> str | None:
        (unit,) = needs.on_sound_devices([rank], devices, need(*bad))
        return unit.cuda_id

    assert given() == devices[0].cuda_id
    assert given("GPU 0") == devices[1].cuda_id
    assert given("GPU 0", "GPU 1", "GPU 2") == ""
    gpu_unit = PlannedUnit("GPU 0", devices[0].cuda_id)
    assert needs.on_sound_devices([gpu_unit], devices, need("GPU 0")) == (gpu_unit,)
    plain = PlannedUnit("rank 0")
    assert needs.on_sound_devices([plain], (), need("GPU 0")) == (plain,)
