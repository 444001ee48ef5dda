"""From options to a plan: the GPUs are asked when some are expected, and choose their layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight import prepare
from preflight.ended import Ended
from preflight.gpu_facts import Gpu
from preflight.isolate import Stop
from preflight.machine.root import host
from preflight.prepare import Preparation
from preflight.run_options import Options
from preflight.settings import Request
from tests import making


def prepared(
    monkeypatch: pytest.MonkeyPatch,
    *gpus: Gpu,
    gpu: str | None = None,
    thresholds: str = "default",
    environ: Mapping[str, str] | None = None,
) -> tuple[Preparation, list[dict[str, Any]]]:
    """A preparation on a node with these GPUs, and the requests that children were given."""
    facts = making.gpu_facts(*gpus)
    answer = {
        "nvml": facts.nvml.model_dump(mode="json") if facts.nvml else None,
        "gpus": [gpu.model_dump(mode="json") for gpu in facts.gpus],
        "node": "exclusive",
    }
    asked: list[dict[str, Any]] = []

    def run_child(request: dict[str, Any], **options: Any) -> Ended:
        asked.append(request)
        return Ended("done", 0.1, answer=answer)

    monkeypatch.setattr(prepare, "run_isolated", run_child)
    options = Options(request=Request(thresholds=thresholds, gpu=gpu), check=("limits",))
    made = Preparation(options, environ or {}, host(), Stop(), lambda check, text: None)
    made.settle()
    made.look()
    return made, asked


def test_the_model_of_the_gpus_chooses_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = prepared(monkeypatch)
    assert "gpu/h100-sxm.yaml" in made.settings.layers
    plan = made.plan()
    assert [gpu.name for gpu in plan.facts.gpus] == ["NVIDIA H100 80GB HBM3"]
    assert (plan.facts.node, plan.job.ranks) == ("exclusive", 1)


@pytest.mark.parametrize(
    "gpus",
    [
        (making.gpu(0), making.gpu(1, name="NVIDIA L4")),
        (making.gpu(0, name="NVIDIA Z9000"),),
        (making.gpu(0, name=None),),
        (making.gpu(0, mig=True, mig_slices=("MIG-1",)),),
    ],
)
def test_mixed_unknown_sliced_and_nameless_models_have_no_layer(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[Gpu, ...]
) -> None:
    made, _ = prepared(monkeypatch, *gpus)
    assert made.settings.layers == ("default.yaml",)
    assert made.plan().job.ranks == len(gpus)


def test_a_named_gpu_stands_whatever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = prepared(monkeypatch, making.gpu(name="NVIDIA L4"), gpu="h100-sxm")
    assert "gpu/h100-sxm.yaml" in made.settings.layers


@pytest.mark.parametrize(("gpu", "thresholds"), [("none", "default"), (None, "cpu")])
def test_where_no_gpu_is_expected_nvml_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, gpu: str | None, thresholds: str
) -> None:
    made, asked = prepared(monkeypatch, gpu=gpu, thresholds=thresholds)
    assert asked == []
    assert made.plan().facts.nvml is None


def test_a_named_file_that_is_not_for_these_gpus_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = prepared(monkeypatch, gpu="a100-sxm")
    assert made.notes == [
        "gpu: a100-sxm was asked for, and the GPUs here are: NVIDIA H100 80GB HBM3"
    ]
    fitting, _ = prepared(monkeypatch, gpu="h100-sxm")
    assert fitting.notes == []


def test_each_run_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (prepared(monkeypatch, gpu="none")[0].plan().job.seed for _ in range(2))
    assert first != second


def test_what_the_data_lie_on_is_known_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the child that takes the first look, for real."""
    (tmp_path / "a.jpg").write_bytes(b"x")
    options = Options(request=Request(thresholds="cpu"), check=("limits",), data=str(tmp_path))
    made = Preparation(options, {}, host(), Stop(), lambda check, text: None)
    made.settle()
    made.look()
    on, real = made.plan().job.data_on, str(tmp_path.resolve())
    assert on is not None and real.startswith(on.point) and on.fs_type


def test_an_unknown_model_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = prepared(monkeypatch, making.gpu(name="NVIDIA Z9000"))
    (note,) = made.notes
    assert "'NVIDIA Z9000'" in note and "link-model" in note


@pytest.mark.parametrize(
    ("visible", "order", "noted"),
    [("0", None, True), ("0", "PCI_BUS_ID", False), (None, None, False), ("GPU-", None, False)],
)
def test_numbers_among_mixed_models_are_noted(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, order: str | None, noted: bool
) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    given = {name: value for name, value in environ.items() if value is not None}
    made, _ = prepared(
        monkeypatch, making.gpu(0), making.gpu(1, name="NVIDIA A100-SXM4-80GB"), environ=given
    )
    assert any("CUDA_DEVICE_ORDER=PCI_BUS_ID" in note for note in made.notes) == noted
