"""The shipped GPU files: which real GPU names pick which, and that no number lacks a source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.checks import discover
from preflight.settings import validate_file
from preflight.settings.layers import Layer, find, match_gpu, shipped_layers
from preflight.settings.tree import Branch, SettingsError, flatten

SHIPPED = Path(__file__).parents[2] / "thresholds"

# Where the names stand. The first is the driver's own table of what NVML answers.
DRIVER = "NVIDIA/open-gpu-kernel-modules src/nvidia/generated/g_nv_name_released.h"
DLE = "NVIDIA/DeepLearningExamples"
TXL = f"{DLE} PyTorch/LanguageModeling/Transformer-XL/pytorch/scripts/tests"
LAMBDA = "lambdal/deeplearning-benchmark pytorch/results"
CONDOR = "htcondor/htcondor src/gpu/simulated_device_enumeration.cpp"

# (name, the file it picks, where it is printed). Names without NVIDIA are of drivers before 470.
GPU_NAMES: list[tuple[str, str | None, str]] = [
    ("Tesla V100-SXM2-16GB", "v100-sxm", f"{TXL}/reference_training_throughput"),
    ("Tesla V100-SXM2-32GB", "v100-sxm", f"{TXL}/reference_training_throughput"),
    ("Tesla V100-SXM3-32GB", "v100-sxm", f"{TXL}/reference_inference_throughput"),
    ("Tesla V100-PCIE-16GB", "v100-pcie", CONDOR),
    ("Tesla V100-PCIE-32GB", "v100-pcie", "karpathy/llm.c llmc/mfu.h"),
    ("Tesla V100S-PCIE-32GB", "v100-pcie", "https://github.com/vllm-project/vllm/issues/10147"),
    ("A100-SXM4-40GB", "a100-sxm", f"{LAMBDA}/2xA100_SXM4/PyTorch_ncf_FP16"),
    ("A100-SXM-80GB", "a100-sxm", f"{LAMBDA}/2xA100_80GB_SXM4/PyTorch_ncf_FP16"),
    ("NVIDIA A100-SXM4-40GB", "a100-sxm", DRIVER),
    ("NVIDIA A100-SXM4-80GB", "a100-sxm", DRIVER),
    ("A100-PCIE-40GB", "a100-pcie", f"{LAMBDA}/2xA100_PCIe/PyTorch_ncf_FP16"),
    ("A100-PCIE-80GB", "a100-pcie", f"{LAMBDA}/2xA100_80GB_PCIe/PyTorch_ncf_FP16"),
    ("NVIDIA A100-PCIE-40GB", "a100-pcie", DRIVER),
    ("NVIDIA A100 80GB PCIe", "a100-pcie", DRIVER),
    ("NVIDIA H100 80GB HBM3", "h100-sxm", DRIVER),
    ("NVIDIA H100 PCIe", "h100-pcie", DRIVER),
    ("NVIDIA H100 NVL", "h100-nvl", DRIVER),
    ("NVIDIA H200", "h200", DRIVER),
    ("NVIDIA B200", "b200", DRIVER),
    ("NVIDIA A10", "a10", DRIVER),
    ("NVIDIA A10G", "a10g", DRIVER),
    ("NVIDIA A30", "a30", DRIVER),
    ("A40", "a40", f"{LAMBDA}/2xA40/PyTorch_ncf_FP16"),
    ("NVIDIA A40", "a40", DRIVER),
    ("NVIDIA L4", "l4", DRIVER),
    ("NVIDIA L40", "l40", DRIVER),
    ("NVIDIA L40S", "l40s", DRIVER),
    ("Tesla T4", "t4", DRIVER),
    ("GeForce RTX 3090", "rtx-3090", f"{LAMBDA}/2x3090/PyTorch_ncf_FP16"),
    ("NVIDIA GeForce RTX 3090", "rtx-3090", DRIVER),
    ("NVIDIA GeForce RTX 4090", "rtx-4090", DRIVER),
    ("NVIDIA GeForce RTX 5090", "rtx-5090", DRIVER),
    # Other silicon, another link, or a share of a GPU: judged by the link they sit on.
    ("Tesla P100-PCIE-16GB", None, "NVIDIA/DCGM nvvs/diag-skus.yaml.in"),
    ("NVIDIA A100-SXM-64GB", None, DRIVER),
    ("NVIDIA A100-PG509-200", None, DRIVER),
    ("NVIDIA A800-SXM4-80GB", None, DRIVER),
    ("NVIDIA A800 80GB PCIe", None, DRIVER),
    ("NVIDIA H100", None, DRIVER),
    ("NVIDIA H800", None, DRIVER),
    ("NVIDIA H800 PCIe", None, DRIVER),
    ("NVIDIA H20", None, DRIVER),
    ("NVIDIA H20-3e", None, DRIVER),
    ("NVIDIA H200 NVL", None, DRIVER),
    ("NVIDIA GH200 120GB", None, DRIVER),
    ("NVIDIA GH200 480GB", None, DRIVER),
    ("NVIDIA GH200 144G HBM3e", None, DRIVER),
    ("NVIDIA GB200", None, DRIVER),
    ("NVIDIA GB300", None, DRIVER),
    ("NVIDIA B300 SXM6 AC", None, DRIVER),
    ("NVIDIA GB10", None, DRIVER),
    ("Orin (nvgpu)", None, "https://github.com/anduril/jetpack-nixos/pull/371"),
    ("NVIDIA A10M", None, DRIVER),
    ("NVIDIA A16", None, DRIVER),
    ("NVIDIA A2", None, DRIVER),
    ("NVIDIA L2", None, DRIVER),
    ("NVIDIA L20", None, DRIVER),
    ("NVIDIA T400 4GB", None, DRIVER),
    ("NVIDIA RTX A4000", None, DRIVER),
    ("NVIDIA RTX A6000", None, DRIVER),
    ("NVIDIA RTX 6000 Ada Generation", None, DRIVER),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", None, DRIVER),
    ("NVIDIA GeForce RTX 3090 Ti", None, DRIVER),
    ("NVIDIA GeForce RTX 4090 D", None, DRIVER),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", None, DRIVER),
    ("NVIDIA GeForce RTX 5090 D", None, DRIVER),
    ("NVIDIA GeForce RTX 5090 D v2", None, DRIVER),
    ("NVIDIA GeForce RTX 5090 Laptop GPU", None, DRIVER),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None, CONDOR),
    ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None, CONDOR),
    ("NVIDIA A40-48Q", None, DRIVER),
    ("NVIDIA A10-24Q", None, DRIVER),
    ("NVIDIA A30-24C", None, DRIVER),
    ("NVIDIA H100XM-80C", None, DRIVER),
    ("GRID A100-40C", None, DRIVER),
    ("GRID T4-16Q", None, DRIVER),
]  # fmt: skip


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    return shipped_layers("gpu", SHIPPED)


def test_the_table_is_wide_enough_and_says_where_each_name_is_printed() -> None:
    names = [name for name, _, _ in GPU_NAMES]
    assert len(names) == len(set(names)) >= 30
    assert all(re.match(r"https://\S+$|[\w.-]+/[\w.-]+ \S+$", source) for *_, source in GPU_NAMES)


@pytest.mark.parametrize(("name", "file"), [row[:2] for row in GPU_NAMES])
def test_a_name_picks_its_file_alone(name: str, file: str | None, layers: list[Layer]) -> None:
    # match_gpu refuses a name that two files fit.
    found = match_gpu(name, layers)
    assert (found.name if found else None) == (f"gpu/{file}.yaml" if file else None)


def test_every_file_is_picked_by_a_name(layers: list[Layer]) -> None:
    picked = {f"gpu/{file}.yaml" for _, file, _ in GPU_NAMES if file}
    assert picked == {layer.name for layer in layers}
    for layer in layers:
        for pattern in layer.match:
            fits = [name for name, _, _ in GPU_NAMES if re.fullmatch(pattern, name)]
            assert fits, f"{layer.name}: no real name fits {pattern}"


def test_every_file_is_described_and_valid(layers: list[Layer]) -> None:
    checks = {id: check.limits for id, check in discover().items()}
    for layer in layers:
        assert layer.description
        validate_file(layer.path, checks, SHIPPED)


@pytest.mark.parametrize(
    ("word", "offered"),
    [
        ("h100", "Did you mean h100-sxm?"),
        ("a100", "Did you mean a100-sxm?"),
        ("rtx", "Known: rtx-3090, rtx-4090, rtx-5090."),
        ("l40z", "Did you mean l40?"),
    ],
)
def test_half_a_name_is_answered_with_that_gpus_files(word: str, offered: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(offered)):
        find(word, ("gpu",), "--gpu", Path(), SHIPPED)


def numbers(layer: Layer) -> Iterator[tuple[str, float, str | None]]:
    for key, leaf in flatten(layer.tree):
        if isinstance(leaf.value, int | float):
            yield key, leaf.value, leaf.source


def test_every_number_has_a_source_that_can_be_looked_up(layers: list[Layer]) -> None:
    seen = [(layer.name, *row) for layer in layers for row in numbers(layer)]
    assert len(seen) > 20
    for file, key, _, source in seen:
        assert source and re.match(r"[\w.-]+/[\w.-]+", source), f"{file}: {key} has no source"


def test_a_file_holds_copy_floors_and_demand_of_named_workloads_alone(layers: list[Layer]) -> None:
    workloads = {layer.path.stem for layer in shipped_layers("workload", SHIPPED)}
    floors = {"min_h2d_gb_per_s", "min_d2h_gb_per_s"}
    for layer in layers:
        tables = {"demand_samples_per_s", "multi_gpu_demand_samples_per_s"}
        assert set(layer.tree.children) <= {"pinned_copy", *tables}
        for section, allowed in (("pinned_copy", floors), *((name, workloads) for name in tables)):
            node = layer.tree.children.get(section, Branch({}, ""))
            assert isinstance(node, Branch)
            assert set(node.children) <= allowed, f"{layer.name}: {section}"


def test_a_floor_is_one_that_the_link_model_would_not_refuse(layers: list[Layer]) -> None:
    # GB/s over 16 lanes by generation: a floor above what the GPU's best link carries is a slip.
    best = {"v100": 12, "a100": 24, "h100": 48, "h200": 48}
    held = [(layer.path.stem, key, value) for layer in layers for key, value, _ in numbers(layer)
            if key.startswith("pinned_copy.")]  # fmt: skip
    assert held
    for file, key, value in held:
        assert value <= best[file.partition("-")[0]], f"{file}: {key}"


def test_a_missing_figure_is_explained(layers: list[Layer]) -> None:
    for layer in layers:
        text = layer.path.read_text()
        for section, words in (
            ("pinned_copy", ("No copy floor",)),
            ("demand_samples_per_s", ("No demand", "no demand")),
        ):
            said = any(word in text for word in words)
            assert said != (section in layer.tree.children), f"{layer.name}: {section}"


def test_demand_says_its_precision(layers: list[Layer]) -> None:
    for layer in layers:
        if "demand_samples_per_s" in layer.tree.children:
            said = re.search(r"[Mm]ixed precision|bf16|fp8|float8", layer.path.read_text())
            assert said, layer.name


def test_several_gpus_have_a_figure_only_beside_the_one_of_one_and_not_above_it(
    layers: list[Layer],
) -> None:
    # Such a figure would not be used: see preflight.settings.derived.
    seen = 0
    for layer in layers:
        held = {key: value for key, value, _ in numbers(layer)}
        for key, value in held.items():
            table, _, workload = key.rpartition(".")
            if table == "multi_gpu_demand_samples_per_s":
                assert 0.7 <= value / held[f"demand_samples_per_s.{workload}"] <= 1, layer.name
                seen += 1
    assert seen > 15


@pytest.mark.parametrize(
    ("file", "workload", "alone", "together"),
    [
        ("a100-sxm", "resnet50", 2470, 16621 / 8),
        ("a100-sxm", "ssd300", 724.41, 5733.98 / 8),
        ("v100-sxm", "resnet50", 1156, 8056 / 8),
        ("h100-sxm", "resnet50", 2790, 22059 / 8),
        ("h100-pcie", "resnet50", 1976, 14713 / 8),
        ("h200", "resnet50", 3079, 24475 / 8),
        ("b200", "resnet50", 3076, 24461 / 8),
        ("b200", "retinanet", 24 / 0.04755, 24 / 0.04755),
        ("b200", "flux", 48 / 1.35, 48 / 1.35),
        ("rtx-4090", "resnet50", 1301, 2468 / 2),
    ],
)
def test_figures_are_those_of_their_sources(
    file: str, workload: str, alone: float, together: float, layers: list[Layer]
) -> None:
    (layer,) = [layer for layer in layers if layer.path.stem == file]
    held = {key: value for key, value, _ in numbers(layer)}
    assert held[f"demand_samples_per_s.{workload}"] == pytest.approx(alone, rel=2e-3)
    assert held[f"multi_gpu_demand_samples_per_s.{workload}"] == pytest.approx(together, rel=2e-3)
