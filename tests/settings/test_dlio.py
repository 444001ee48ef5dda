"""Workload files of DLIO and MLPerf Storage become site files, or one line that says why not.

The files below are written by us; their numbers are those of the files named beside them.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.checks import discover
from preflight.settings import SHIPPED, Request, Settings, resolve, validate_file
from preflight.settings.dlio import site_file
from preflight.settings.tree import SettingsError

CHECKS = {id: check.limits for id, check in discover().items()}

# mlcommons/storage configs/dlio/workload/unet3d_h100.yaml
UNET3D = """
model: {name: unet3d, type: cnn}
framework: pytorch
workflow: {generate_data: False, train: True}
dataset:
  data_folder: data/unet3d/
  format: npz
  num_samples_per_file: 1
  record_length_bytes: 146600628
  record_length_bytes_stdev: 68341808
  record_length_bytes_resize: 2097152
reader: {data_loader: pytorch, batch_size: 7, read_threads: 4, file_shuffle: seed}
train: {epochs: 5, computation_time: 0.323}
metric: {au: 0.90}
"""
# argonne-lcf/dlio_benchmark dlio_benchmark/configs/workload/resnet50_v100.yaml
RESNET50 = """
model: resnet50
dataset: {format: png, record_length: 114660.07, record_length_std: 136075.82,
          record_length_resize: 150528}
reader: {batch_size: 64, read_threads: 8, computation_threads: 8}
train: {computation_time: 0.195}
"""
# mlcommons/storage configs/dlio/workload/retinanet_b200.yaml
RETINANET = """
model: {name: retinanet}
dataset: {format: jpeg, record_length_bytes: 322957}
reader: {batch_size: 24, read_threads: 8}
train: {computation_time: 0.04755}
metric: {au: 0.85}
"""
# mlcommons/storage configs/dlio/workload/flux_b200.yaml
FLUX = """
model: {name: flux}
dataset: {format: parquet, num_samples_per_file: 288, record_length: 2164832,
          parquet: {columns: [{name: t5_encodings, dtype: float32, size: 524328}]}}
reader: {batch_size: 48, read_threads: 8}
train: {computation_time: 1.35}
"""
# mlcommons/storage configs/dlio/workload/dlrm_b200.yaml
DLRM = """
dataset: {format: parquet, num_samples_per_file: 4718592, record_length_bytes: 761}
reader: {batch_size: 16384, prefetch_size: 2, read_threads: 4}
train: {computation_time: 0.000375}
metric: {au: 0.70}
"""
# argonne-lcf/dlio_benchmark dlio_benchmark/configs/workload/cosmoflow_h100.yaml
COSMOFLOW = """
dataset: {format: tfrecord, record_length: 2828486}
reader: {batch_size: 1, read_threads: 4}
train: {computation_time: 0.00350}
"""
# argonne-lcf/dlio_benchmark dlio_benchmark/configs/workload/dlrm.yaml
NO_THREADS = """
dataset: {format: indexed_binary, record_length: 327680}
reader: {batch_size: 2048}
train: {computation_time: 0.064296}
"""


def resolved(text: str, folder: Path, **asked: Any) -> Settings:
    """The settings for a host without GPU, with what the importer made of a workload."""
    path = folder / "imported.yaml"
    path.write_text(site_file(text.encode(), "workload.yaml"), encoding="utf-8")
    return resolve(Request(thresholds=str(path), **{"gpu": "none", **asked}), CHECKS, SHIPPED)


@pytest.mark.parametrize(
    ("text", "demand", "ratio", "codec", "encoded", "shape", "batch", "workers", "prefetch"),
    [
        (UNET3D, 7 / 0.323, 0.90, "raw", 146600628, (2097152,), 7, 4, 1),
        (RESNET50, 64 / 0.195, 0.90, "jpeg", 114660, (3, 224, 224), 64, 8, 1),
        (RETINANET, 24 / 0.04755, 0.85, "jpeg", 322957, (3, 328, 328), 24, 8, 1),
        (FLUX, 48 / 1.35, 0.90, "raw", 2164832, (2164832,), 48, 8, 1),
        (DLRM, 16384 / 0.000375, 0.70, "raw", 761, (761,), 16384, 4, 1),
        (COSMOFLOW, 1 / 0.0035, 0.90, "raw", 2828486, (2828486,), 1, 4, 1),
        (NO_THREADS, 2048 / 0.064296, 0.90, "raw", 327680, (327680,), 2048, 1, 2),
    ],
    ids=["unet3d", "resnet50", "retinanet", "flux", "dlrm", "cosmoflow", "no threads"],
)
def test_facts_of_public_files(
    text: str, demand: float, ratio: float, codec: str, encoded: int, shape: tuple[int, ...],
    batch: int, workers: int, prefetch: int, tmp_path: Path,
) -> None:  # fmt: skip
    made = resolved(text, tmp_path)
    validate_file(tmp_path / "imported.yaml", CHECKS, SHIPPED)
    limits: Any = made.limits["dataloader"]
    assert limits.demand_samples_per_s == pytest.approx(demand, rel=1e-5)
    assert (limits.demand_from, limits.min_feed_ratio) == ("site", ratio)
    sample, loader = made.sample, made.loader
    assert (sample.codec, sample.encoded_bytes, sample.shape) == (codec, encoded, shape)
    assert sample.dtype == "uint8"
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (
        batch, workers, prefetch,
    )  # fmt: skip


def test_the_arithmetic_is_the_demands_source(tmp_path: Path) -> None:
    row = resolved(UNET3D, tmp_path).values["dataloader.demand_samples_per_s"]
    assert row.source == "workload.yaml: batch_size 7 / computation_time 0.323 s"


def comments(text: str) -> str:
    """The comments of what the importer makes, on one line."""
    made = site_file(text.encode(), "workload.yaml")
    lines = [line for line in made.splitlines() if line.startswith("#")]
    assert all(len(line) <= 100 for line in lines)
    return re.sub(r"\s+", " ", " ".join(line.lstrip("#") for line in lines))


def test_what_has_no_counterpart_is_said() -> None:
    said = comments(UNET3D)
    assert "dataset.record_length_bytes_stdev: all samples are made as large as the mean" in said
    assert "sample.shape: the bytes of the record as DLIO resizes it" in said
    assert "without --data PATH" in said
    left = said.partition("no counterpart here: ")[2]
    assert left.split(", ") == [
        "model.type", "framework", "workflow.generate_data", "reader.data_loader",
        "reader.file_shuffle", "train.epochs",
    ]  # fmt: skip
    assert "num_samples_per_file" not in said
    assert "num_samples_per_file 288: samples are read as files of their own" in comments(FLUX)
    assert "the images are decoded, which DLIO does not do" in comments(RETINANET)
    assert "328 x 328" in comments(RETINANET)


def test_a_secret_in_the_file_is_not_repeated() -> None:
    text = COSMOFLOW + (
        "storage: {storage_type: s3, storage_options: {secret_access_key: hush}}\n"
        "mine: {token: hush}\nother: hush\n"
    )
    made = site_file(text.encode(), "workload.yaml")
    assert "hush" not in made
    assert "mine.token, other" in made


def edited(text: str, before: str, after: str) -> str:
    assert before in text
    return text.replace(before, after)


@pytest.mark.parametrize(
    ("step", "demand"),
    [
        ("1e-1", 70),
        ("{mean: 0.2}", 35),
        ("{mean: 0.2, stdev: 0.1}", 35),
        ("{mean: 0.2, stdev: 0.1, type: normal}", 35),
        ("{min: 0.1, max: 0.3, type: uniform}", 35),
        ("{shape: 2.0, scale: 0.1, type: gamma}", 35),
        ("{scale: 0.2, type: exponential}", 35),
        ("{lam: 7, type: poisson}", 1),
    ],
)
def test_a_step_may_be_a_distribution(step: str, demand: float, tmp_path: Path) -> None:
    text = edited(UNET3D, "0.323", step)
    limits: Any = resolved(text, tmp_path).limits["dataloader"]
    assert limits.demand_samples_per_s == pytest.approx(demand)
    assert ("its mean is taken" in comments(text)) == step.startswith("{")


@pytest.mark.parametrize(
    ("before", "after", "key", "value"),
    [
        ("read_threads: 4", "read_threads: 0", "loader.num_workers", 1),
        ("read_threads: 4", "read_threads: 4, prefetch_size: 9", "loader.prefetch_factor", 3),
        ("read_threads: 4", "read_threads: 4, prefetch_size: 0", "loader.prefetch_factor", 2),
        ("read_threads: 4", "read_threads: 0, prefetch_size: 5", "loader.prefetch_factor", 5),
        ("read_threads: 4", "pin_memory: False", "loader.pin_memory", False),
        (
            "read_threads: 4", "multiprocessing_context: spawn",
            "loader.multiprocessing_context", "spawn",
        ),
        ("batch_size: 7", "batch_size: 7.0", "loader.batch_size", 7),
        (
            "batch_size: 7",
            "batch_size: 7, transformed_record_dims: [3, 8, 8], "
            "transformed_record_element_type: float32",
            "sample.shape", [3, 8, 8],
        ),
        (
            "batch_size: 7",
            "batch_size: 7, transformed_record_dims: [3, 8], "
            "transformed_record_element_type: float64",
            "sample.shape", [192],
        ),
        (
            "record_length_bytes: 146600628", "record_dims: [100, 7]\n  record_element_type: int16",
            "sample.encoded_bytes", 1400,
        ),
        ("  record_length_bytes_resize: 2097152\n", "", "sample.shape", [146600628]),
    ],
)  # fmt: skip
def test_what_dlio_knows_too(before: str, after: str, key: str, value: Any, tmp_path: Path) -> None:
    assert resolved(edited(UNET3D, before, after), tmp_path).values[key].value == value


def test_a_composed_file_of_hydras_is_taken(tmp_path: Path) -> None:
    text = "workload:\n" + textwrap.indent(UNET3D, "  ")
    assert resolved(text, tmp_path).loader.batch_size == 7


def test_the_order_of_demand(tmp_path: Path) -> None:
    """--set, then a site file over the imported one, then that one, then the GPU layer."""

    def demand(**asked: Any) -> tuple[Any, Any]:
        named = {"gpu": "h100-sxm", "workload": "unet3d", **asked}
        limits: Any = resolve(Request(**named), CHECKS, SHIPPED).limits["dataloader"]
        return limits.demand_samples_per_s, limits.demand_from

    imported, site = str(tmp_path / "imported.yaml"), tmp_path / "site.yaml"
    resolved(RESNET50, tmp_path)
    assert demand() == (21.7, "gpu table")
    assert demand(thresholds=imported) == (pytest.approx(64 / 0.195, rel=1e-5), "site")
    site.write_text("extends: imported.yaml\ndataloader: {demand_samples_per_s: 400}\n")
    assert demand(thresholds=str(site)) == (400, "site")
    stated = {"set_options": ["dataloader.demand_samples_per_s=500"]}
    assert demand(thresholds=str(site), **stated) == (500, "set")


MISSING = "train.computation_time is missing: seconds of a training step"
REFUSED = [
    (UNET3D, "computation_time: 0.323", "seed: 1", MISSING),
    (UNET3D, "computation_time: 0.323", "computation_time:", MISSING),
    (UNET3D, "0.323", "0", "train.computation_time: needs a number above 0, got '0'"),
    (UNET3D, "0.323", "-1", "got '-1'"),
    (UNET3D, "0.323", ".nan", "got 'nan'"),
    (UNET3D, "0.323", ".inf", "got 'inf'"),
    (UNET3D, "0.323", "1e999", "got '1e999'"),
    (UNET3D, "0.323", "True", "got 'True'"),
    (UNET3D, "0.323", "soon", "got 'soon'"),
    (UNET3D, "0.323", "2024-01-01", "got '2024-01-01'"),
    (UNET3D, "0.323", "[1, 2]", "train.computation_time: needs one value, got a list"),
    (UNET3D, "0.323", "1e-14", "is no rate that a GPU could have"),
    (UNET3D, "0.323", "{type: cauchy}", "cauchy is no distribution of DLIO's"),
    (UNET3D, "0.323", "{min: 1, type: uniform}", "computation_time.max is missing"),
    (UNET3D, "0.323", "'${step}'", "train.computation_time: '${step}' is filled in by hydra"),
    (UNET3D, "0.323", "'???'", "is filled in by hydra"),
    (UNET3D, "batch_size: 7, ", "", "reader.batch_size is missing"),
    (UNET3D, "batch_size: 7", "batch_size: 0", "reader.batch_size: needs a number above 0"),
    (UNET3D, "batch_size: 7", "batch_size: 7.5", "needs a whole number, got 7.5"),
    (UNET3D, "batch_size: 7", "batch_size: 1, batch_size: 7", ":12: not YAML: duplicate key"),
    (UNET3D, "read_threads: 4", "read_threads: -4", "reader.read_threads: needs a number"),
    (UNET3D, "record_length_bytes: 146600628", "x: 1", "record_length_bytes is missing"),
    (UNET3D, "146600628", "-5", "dataset.record_length_bytes: needs a number above 0"),
    (UNET3D, "146600628", "1e18", "at most 1e+15"),
    (UNET3D, "format: npz", "format: npzz", "dataset.format: npzz is none of DLIO's"),
    (UNET3D, "au: 0.90", "au: 90", "metric.au: needs a number above 0, at most 1, got '90'"),
    (UNET3D, "train: True", "train: False", "workflow.train is off"),
    (UNET3D, "train: True", "train: maybe", "workflow.train: needs true or false, got 'maybe'"),
    (UNET3D, "framework: pytorch", "defaults: [base, _self_]", "put together from others by hydra"),
    (UNET3D, "framework: pytorch", "framework: !!python/name:os.system", ":3: not YAML: could not"),
    (UNET3D, "framework: pytorch", "framework: [", "not YAML"),
    (UNET3D, "framework: pytorch", "framework: \x07", "not YAML"),
    (UNET3D, "framework: pytorch", "framework: 2024-99-99", "not YAML: month must be in 1..12"),
    (UNET3D, "framework: pytorch", "framework: " + "[" * 5000, "not YAML"),
    (UNET3D, "framework: pytorch", "---", "not YAML"),
    (UNET3D, UNET3D, "", "the file is empty"),
    (UNET3D, UNET3D, "- 1\n", "the file is not a mapping"),
    (UNET3D, UNET3D, "kind: site\nsample: {codec: raw}\n", "no DLIO workload"),
    (UNET3D, UNET3D, "x: " + "y" * 70000, "more than 64 KiB"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "before", "after", "says"), REFUSED)
def test_refused(text: str, before: str, after: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        site_file(edited(text, before, after).encode(), "work\nload.yaml")
    said = str(caught.value)
    assert says in said
    assert said.startswith("work?load.yaml:") and len(said.splitlines()) == 1
    assert all(c.isprintable() for c in said)


def test_a_checkpoint_only_workload_is_refused_for_what_it_is() -> None:
    # mlcommons/storage configs/dlio/workload/llama3_8b.yaml has no dataset, reader or train.
    text = b"model: {name: llama_8b}\nworkflow: {train: False, checkpoint: True}\n"
    with pytest.raises(SettingsError, match="writes checkpoints says nothing of what feeds a GPU"):
        site_file(text, "llama3_8b.yaml")


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(SettingsError, match="not YAML"):
        site_file(b"\xff\xff\xff", "a.yaml")


def test_references_that_grow_cost_nothing() -> None:
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    text = "\n".join(layers) + COSMOFLOW + "mine: *a11\n"
    assert "a11, mine" in site_file(text.encode(), "a.yaml")
    with pytest.raises(SettingsError, match="got a list"):
        site_file((text + "model: *a11\n").encode(), "a.yaml")


positive = st.floats(1e-3, 1e4, allow_nan=False)
names = st.text(max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.text(min_size=1, max_size=60), model=names, step=positive,
    batch=st.integers(1, 10**6), length=st.floats(0.1, 1e12),
    resize=st.none() | st.floats(0, 1e9), threads=st.none() | st.integers(0, 500),
    prefetch=st.none() | st.integers(0, 500), kind=st.sampled_from(["npz", "jpeg", "tfrecord"]),
    au=st.none() | st.floats(0.01, 1), extra=st.dictionaries(names, names, max_size=3),
)  # fmt: skip
def test_whatever_is_taken_makes_a_valid_site_file(
    tmp_path_factory: pytest.TempPathFactory, name: str, model: str, step: float, batch: int,
    length: float, resize: float | None, threads: int | None, prefetch: int | None, kind: str,
    au: float | None, extra: dict[str, str],
) -> None:  # fmt: skip
    tree: dict[str, Any] = {
        "model": {"name": model, **extra},
        "dataset": {**extra, "record_length_bytes": length, "record_length_bytes_resize": resize,
                    "format": kind},
        "reader": {"batch_size": batch, "read_threads": threads, "prefetch_size": prefetch},
        "train": {"computation_time": step},
        "metric": {"au": au},
    }  # fmt: skip
    try:
        made = site_file(yaml.safe_dump(tree).encode(), name)
    except SettingsError as error:
        assert "is filled in by hydra" in str(error)  # a model called ${x}
        return
    path = tmp_path_factory.mktemp("made") / "made.yaml"
    path.write_text(made, encoding="utf-8")
    limits: Any = resolve(Request(thresholds=str(path), gpu="none"), CHECKS, SHIPPED).limits
    assert limits["dataloader"].demand_samples_per_s == pytest.approx(batch / step, rel=1e-5)
