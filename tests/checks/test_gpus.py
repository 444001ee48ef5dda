"""The GPU inventory against what is expected: every finding, its blame and its words."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.checks.contract import Unit
from preflight.checks.gpus import CHECK, observe
from preflight.checks.gpus.reading import GpusLimits
from preflight.facts import Facts
from preflight.gpu_facts import Gpu, GpuHost, Nvml
from preflight.machine.root import host
from preflight.model import Finding
from preflight.outcome import Blame, Outcome
from preflight.scratch import Scratch
from tests import making

PASS, WARN, FAIL, SKIP, ERROR = (
    Outcome.PASS, Outcome.WARN, Outcome.FAIL, Outcome.SKIP, Outcome.ERROR,
)  # fmt: skip


def limits(**changes: Any) -> GpusLimits:
    found: GpusLimits = making.settings("default").limits["gpus"]  # type: ignore[assignment]
    return found.model_copy(update=changes)


def seen(facts: Facts, *, sharing: str = "exclusive", **changes: Any) -> dict[str, list[Finding]]:
    """Findings by name."""
    unit = Unit(
        subject=None, machine=host(), limits=limits(**changes), facts=facts, earlier={},
        job=making.job(gpu_sharing=sharing), scratch=Scratch("test"),
    )  # fmt: skip
    found: dict[str, list[Finding]] = {}
    for finding in CHECK.judge([observe(unit)], limits(**changes)):
        found.setdefault(finding.id.removeprefix("gpus."), []).append(finding)
    return found


def eight(**changed: Gpu) -> tuple[Gpu, ...]:
    """Eight H100s, some of them changed: gpu3=..."""
    return tuple(changed.get(f"gpu{number}", making.gpu(number)) for number in range(8))


def on_bus(facts: Facts, count: int) -> Facts:
    host = GpuHost(
        kernel_module="580.95.05", device_nodes=(),
        pci_gpus=tuple(f"0000:{number:02x}:00.0" for number in range(count)),
    )  # fmt: skip
    return facts.model_copy(update={"gpu_host": host})


def fallen(facts: Facts) -> Facts:
    """All eight device nodes are here."""
    nodes = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{n}" for n in range(8)))
    host = facts.gpu_host.model_copy(update={"device_nodes": nodes})
    return facts.model_copy(update={"gpu_host": host})


def test_a_healthy_node_passes_every_finding() -> None:
    found = seen(making.gpu_facts(*eight()), min_count=8, name="NVIDIA H100 .*")
    assert {finding.outcome for group in found.values() for finding in group} == {PASS}
    assert len(found["lost"]) == len(found["compute_mode"]) == len(found["name"]) == 8
    assert found["count"][0].observed == 8


@pytest.mark.parametrize(
    ("facts", "blame", "words"),
    [
        (
            on_bus(making.gpu_facts(*eight()[:2], node="shared"), 8),
            Blame.SETUP, ("2 of the node's 8 GPUs were given", "nvidia.com/gpu: 8"),
        ),
        (
            making.gpu_facts(*eight(), environment={"CUDA_VISIBLE_DEVICES": "0,1"}),
            Blame.SETUP, ("CUDA_VISIBLE_DEVICES='0,1' leaves 2 of the 8 GPUs", "unset it"),
        ),
        (
            making.gpu_facts(*eight()[:7]),
            Blame.UNKNOWN, ("the PCI bus itself shows 7", "Xid 79"),
        ),
        (
            making.gpu_facts(*eight(gpu3=making.gpu(3, error_code=15, error="GPU lost"))),
            Blame.NODE, ("7 GPUs can be used; GPU 3 cannot", "mend them"),
        ),
        (
            fallen(on_bus(making.gpu_facts(*eight()[:7], node="shared"), 8)),
            Blame.NODE, ("8 GPUs have a device node here, and NVML lists 7", "Xid 79"),
        ),
        (
            on_bus(making.gpu_facts(*eight()[:4], node=None), 0),
            Blame.SETUP, ("CUDA can use 4 GPUs here", "--gres=gpu:8"),
        ),
    ],
)  # fmt: skip
def test_too_few_gpus_say_why(facts: Facts, blame: Blame, words: tuple[str, str]) -> None:
    (count,) = seen(facts, min_count=8)["count"]
    assert (count.outcome, count.blame, count.limit) == (FAIL, blame, 8)
    assert words[0] in (count.cause or "") and words[1] in (count.remedy or "")


def test_part_of_a_node_is_enough_where_no_more_is_expected() -> None:
    facts = on_bus(making.gpu_facts(*eight()[:2], node="shared"), 8)
    found = seen(facts)
    assert {finding.outcome for group in found.values() for finding in group} == {PASS}


@pytest.mark.parametrize(
    ("gpu", "blame", "word"),
    [
        (making.gpu(3, error_code=15, error="GPU lost"), Blame.NODE, "GPU lost"),
        (making.gpu(3, uuid=None, error="no answer in 10 s"), Blame.NODE, "no answer in 10 s"),
    ],
)
def test_a_gpu_that_does_not_answer_is_lost_and_nothing_else_is_said_of_it(
    gpu: Gpu, blame: Blame, word: str
) -> None:
    found = seen(making.gpu_facts(*eight(gpu3=gpu)))
    (lost,) = [finding for finding in found["lost"] if finding.outcome is not PASS]
    assert (lost.outcome, lost.subject, lost.blame) == (FAIL, "GPU 3", blame)
    assert word in (lost.cause or "") and "0000:1e:00.0" in (lost.cause or "") and lost.remedy
    assert len(found["compute_mode"]) == 7


def test_another_model_than_expected_fails() -> None:
    found = seen(making.gpu_facts(), name="NVIDIA A100.*")
    (name,) = found["name"]
    assert (name.outcome, name.blame, name.observed) == (FAIL, Blame.SETUP, "NVIDIA H100 80GB HBM3")


def test_a_name_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        GpusLimits(required=True, timeout_s=1.0, min_count=1, name="(", max_foreign_memory_gib=1.0)


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [("default", PASS), ("exclusive_process", PASS), ("prohibited", FAIL), (None, SKIP)],
)
def test_compute_mode(mode: Any, outcome: Outcome) -> None:
    (found,) = seen(making.gpu_facts(making.gpu(compute_mode=mode)))["compute_mode"]
    assert found.outcome is outcome
    if outcome is FAIL:
        assert found.blame is Blame.NODE and "-c DEFAULT" in (found.remedy or "")


def test_mig_without_an_instance_of_ours_fails_and_with_slices_passes() -> None:
    (empty,) = seen(making.gpu_facts(making.gpu(mig=True)))["mig"]
    assert (empty.outcome, empty.blame) == (FAIL, Blame.SETUP)
    found = seen(making.gpu_facts(making.gpu(mig=True, mig_slices=("MIG-1", "MIG-2"))))
    assert (found["mig"][0].outcome, found["mig"][0].observed) == (PASS, 2)
    assert found["count"][0].observed == 2


def test_mixed_models_warn() -> None:
    facts = making.gpu_facts(making.gpu(0), making.gpu(1, name="NVIDIA L4"))
    (mixed,) = seen(facts)["mixed_models"]
    assert mixed.outcome is WARN
    assert "NVIDIA H100 80GB HBM3, NVIDIA L4" in (mixed.cause or "")


@pytest.mark.parametrize(
    ("gpu", "sharing", "outcome", "word"),
    [
        (making.gpu(), "exclusive", PASS, ""),
        (making.gpu(processes=(17, 18), memory_used_gib=9.0), "exclusive", ERROR, "17, 18"),
        (making.gpu(processes=(17,)), "shared", PASS, ""),
        (making.gpu(processes=(), memory_used_gib=9.0), "exclusive", ERROR, "cannot be seen"),
        (making.gpu(processes=None, memory_used_gib=9.0), "exclusive", ERROR, "cannot be seen"),
        (making.gpu(processes=(), memory_used_gib=0.6), "exclusive", PASS, ""),
        (making.gpu(processes=(), memory_used_gib=None), "exclusive", PASS, ""),
        (making.gpu(processes=None, memory_used_gib=None), "exclusive", SKIP, "tells neither"),
    ],
)
def test_somebody_elses_processes(gpu: Gpu, sharing: str, outcome: Outcome, word: str) -> None:
    (found,) = seen(making.gpu_facts(gpu), sharing=sharing)["foreign_processes"]
    assert found.outcome is outcome
    assert word in (found.cause or "")
    if outcome is ERROR:
        assert found.blame is Blame.SHARED and "gpu_sharing" in (found.remedy or "")


def test_a_system_without_nvml_is_not_judged() -> None:
    none = Nvml(
        state="no_library", code=None, error="not found", step=None, driver_version=None,
        cuda_version=None,
    )  # fmt: skip
    found = seen(making.gpu_facts(nvml=none, gpus=()))
    assert [finding.outcome for finding in found["count"]] == [SKIP]


def test_every_miss_is_whole() -> None:
    facts = making.gpu_facts(
        making.gpu(0, compute_mode="prohibited", processes=(1,)),
        making.gpu(1, error_code=15, error="GPU lost", uuid=None),
        making.gpu(2, mig=True, name="NVIDIA L4"),
    )
    missed = [f for group in seen(facts, min_count=8, name="x").values() for f in group]
    for finding in missed:
        if finding.outcome in (FAIL, ERROR, WARN):
            assert finding.cause and finding.remedy and finding.blame, finding.id
    assert CHECK.needs == ("driver_cuda",)


def test_a_slice_too_few_is_no_gpu_that_fell_off() -> None:
    facts = making.gpu_facts(making.gpu(mig=True, mig_slices=("MIG-1",)))
    (count,) = seen(facts, min_count=2)["count"]
    assert (count.outcome, count.blame) == (FAIL, Blame.SETUP)


def test_gpus_that_the_job_does_not_get_are_not_its_business() -> None:
    facts = making.gpu_facts(
        making.gpu(0), making.gpu(1, name="NVIDIA L4", processes=(77,), compute_mode="prohibited"),
        environment={"CUDA_VISIBLE_DEVICES": "0"},
    )  # fmt: skip
    found = seen(facts)
    assert {finding.outcome for group in found.values() for finding in group} == {PASS}


def test_a_lost_gpu_is_told_of_whoever_gets_it() -> None:
    facts = making.gpu_facts(
        making.gpu(0), making.gpu(1, error_code=15, error="GPU lost"),
        environment={"CUDA_VISIBLE_DEVICES": "0"},
    )  # fmt: skip
    assert [f.outcome for f in seen(facts)["lost"]] == [FAIL, PASS]
