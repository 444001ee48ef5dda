"""A workload file of DLIO or MLPerf Storage in, the text of a site file out.

What DLIO emulates (a step's time, a batch, a record's bytes) is what we call demand, loader and
sample. The file is foreign YAML: it is read as plain data, nothing in it is looked up or run, and
no value of a key that we do not know is repeated. Meanings: argonne-lcf/dlio_benchmark
docs/source/config.rst, utils/config.py and data_loader/torch_data_loader.py.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from preflight.job import DTYPE_BYTES
from preflight.settings.foreign_yaml import Fields, load

_FORMATS = (
    "tfrecord", "hdf5", "hdf5_opt", "csv", "npz", "npy", "jpeg", "png", "indexed_binary",
    "mmap_indexed_binary", "parquet", "synthetic",
)  # fmt: skip
_IMAGES = ("jpeg", "png")
_ELEMENT_BYTES = {
    **DTYPE_BYTES, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "uint64": 8,
    "float64": 8,
}  # fmt: skip
_STARTS = ("fork", "forkserver", "spawn")
_MOST_DIMENSIONS = 6

# DLIO's own, for what a file leaves out.
_READ_THREADS, _PREFETCH_SIZE, _FORMAT, _TYPE = 1, 2, "tfrecord", "uint8"
_TORCH_PREFETCH = 2  # per worker; DLIO leaves it to torch where prefetch_size is 0


def site_file(data: bytes, name: str) -> str:
    """The site file for a workload's bytes; `name` is the file's, for errors and sources.

    Raises:
        SettingsError: in one line, what is missing or cannot be read.
    """
    root = load(data, name)
    name = root.file
    _refuse_other_files(root)
    notes: list[str] = []
    sample = _sample(root, notes)
    demand, sum_ = _demand(root, notes)
    loader = _loader(root, notes)
    gate = [f"  demand_samples_per_s: {_sourced(_plain(demand), sum_)}"]
    if (au := root.number("metric.au", least=0, most=1)) is not None:
        gate.append(f"  min_feed_ratio: {_sourced(_plain(au), f'{name}: metric.au')}")
    _storage_notes(root, notes)
    model = root.text("model.name") or root.text("model") or name.partition(".")[0]
    if left := root.left():
        notes.append(f"left out, with no counterpart here: {', '.join(left)}")
    lines = [
        f"# Imported from {name}. What your job has otherwise, change here.",
        *_comments(notes),
        f"description: {json.dumps(f'{model}, imported from {name}', ensure_ascii=False)}",
        "sample:", *sample,
        "loader:", *loader,
        "dataloader:", *gate,
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def _refuse_other_files(root: Fields) -> None:
    if root.has("defaults"):
        raise root.error(
            "defaults: this file is put together from others by hydra: import the composed one, "
            ".hydra/config.yaml of a run's output folder"
        )
    if not any(root.has(key) for key in ("dataset", "reader", "train", "workflow")):
        raise root.error(
            "no DLIO workload: it has none of the sections dataset, reader, train, workflow"
        )
    if root.flag("workflow.train") is False:
        raise root.error(
            "workflow.train is off: a workload that only makes data or writes checkpoints says "
            "nothing of what feeds a GPU"
        )


def _demand(root: Fields, notes: list[str]) -> tuple[float, str]:
    """Samples/s of one accelerator, and the arithmetic."""
    batch = root.whole("reader.batch_size", needed="the batch of one accelerator")
    step, words = _step_s(root, notes)
    if root.drop("train.computation_time_stdev"):
        notes.append("train.computation_time_stdev: the demand is that of the mean step")
    demand = batch / step
    if not 1e-6 <= demand <= 1e12:
        raise root.error(f"batch_size {batch} / {words} is no rate that a GPU could have")
    return demand, f"{root.file}: batch_size {batch} / {words}"


def _step_s(root: Fields, notes: list[str]) -> tuple[float, str]:
    """Seconds of a step (of its mean, where it is drawn from a distribution), and in words."""
    at = "train.computation_time"
    if not root.is_mapping(at):
        step = root.number(at, least=0, needed="seconds of a training step")
        return step, f"computation_time {_plain(step)} s"
    kind = root.text(f"{at}.type") or "normal"
    parts = {
        "normal": ("mean",), "uniform": ("min", "max"), "gamma": ("shape", "scale"),
        "exponential": ("scale",), "poisson": ("lam",),
    }.get(kind)  # fmt: skip
    if parts is None:
        raise root.error(
            f"{at}.type: {kind} is no distribution of DLIO's"
            " (normal, uniform, gamma, exponential, poisson)"
        )
    found = [root.number(f"{at}.{part}", least=0, needed="of its distribution") for part in parts]
    mean = {"uniform": sum(found) / 2}.get(kind, math.prod(found))
    root.drop(at)
    notes.append(f"train.computation_time is drawn from a {kind} distribution: its mean is taken")
    return mean, f"mean computation_time {_plain(mean)} s"


def _sample(root: Fields, notes: list[str]) -> list[str]:
    kind = root.text("dataset.format") or _FORMAT
    if kind not in _FORMATS:
        raise root.error(f"dataset.format: {kind} is none of DLIO's ({', '.join(_FORMATS)})")
    encoded, key = _record_bytes(root)
    shape, dtype, words = _handed_over(root, encoded)
    image = kind in _IMAGES
    if image:
        side = max(1, round(math.sqrt(math.prod(shape) * _ELEMENT_BYTES[dtype] / 3)))
        shape, dtype = [3, side, side], "uint8"
        notes.append(
            f"dataset.format {kind}: the images are decoded, which DLIO does not do. It knows no "
            f"image size; {side} x {side} has about the bytes of {words}. State your own in "
            "sample.shape"
        )
    elif len(shape) > 1 or dtype != "uint8":
        notes.append(f"sample.shape: {words}")
    else:
        notes.append(f"sample.shape: the bytes of {words}")
    for stdev in ("record_length_bytes_stdev", "record_length_stdev", "record_length_std"):
        if root.drop(f"dataset.{stdev}"):
            notes.append(f"dataset.{stdev}: all samples are made as large as the mean")
    many = root.whole("dataset.num_samples_per_file")
    if many is not None and many > 1:
        notes.append(
            f"dataset.num_samples_per_file {many}: samples are read as files of their own, not "
            f"out of {kind} files"
        )
    return [
        f"  codec: {'jpeg' if image else 'raw'}",
        f"  encoded_bytes: {_sourced(str(encoded), f'{root.file}: {key}')}",
        f"  shape: {shape}",
        f"  dtype: {dtype}",
    ]


def _record_bytes(root: Fields) -> tuple[int, str]:
    """Bytes of a record on disk, and the keys that say so. Dimensions beat a length, as in DLIO."""
    dims = root.wholes("dataset.record_dims")
    kind = root.text("dataset.record_element_type") or _TYPE
    if dims:
        if kind not in _ELEMENT_BYTES:
            raise root.error(f"dataset.record_element_type: {kind} is of no known size")
        root.drop("dataset.record_length_bytes")
        root.drop("dataset.record_length")
        return math.prod(dims) * _ELEMENT_BYTES[kind], "record_dims x record_element_type"
    for key in ("record_length_bytes", "record_length"):
        if (length := root.number(f"dataset.{key}", least=0)) is not None:
            return max(1, round(length)), key
    raise root.error("dataset.record_length_bytes is missing: the bytes of one sample on disk")


def _handed_over(root: Fields, encoded: int) -> tuple[list[int], str, str]:
    """What DLIO's loader gives for a record: shape, type, and which keys say so."""
    dims = root.wholes("reader.transformed_record_dims")
    kind = root.text("reader.transformed_record_element_type") or _TYPE
    resized = None
    for key in ("record_length_bytes_resize", "record_length_resize"):
        found = root.number(f"dataset.{key}", least=0, zero=True)
        resized = resized or (round(found) if found else None)
    if dims:
        if kind not in _ELEMENT_BYTES:
            raise root.error(f"reader.transformed_record_element_type: {kind} is of no known size")
        words = "reader.transformed_record_dims"
        if kind in DTYPE_BYTES and len(dims) <= _MOST_DIMENSIONS:
            return dims, kind, words
        return [math.prod(dims) * _ELEMENT_BYTES[kind]], "uint8", words
    if resized:
        return [resized], "uint8", "the record as DLIO resizes it"
    return [encoded], "uint8", "the whole record, which DLIO does not resize"


def _loader(root: Fields, notes: list[str]) -> list[str]:
    threads = root.whole("reader.read_threads", zero=True)
    if threads == 0:
        notes.append("reader.read_threads 0: one worker does what DLIO's main process does itself")
    workers = _READ_THREADS if threads is None else max(1, threads)
    said = f"{root.file}: read_threads" if threads is not None else "DLIO's default"
    ahead = root.whole("reader.prefetch_size", zero=True)
    ahead = _PREFETCH_SIZE if ahead is None else ahead
    factor = math.ceil(ahead / workers) if ahead else _TORCH_PREFETCH
    loader = [
        f"  batch_size: {root.whole('reader.batch_size', needed='the batch of one accelerator')}",
        f"  num_workers: {_sourced(str(workers), said)}",
        f"  prefetch_factor: {_sourced(str(factor), 'prefetch_size / read_threads, as DLIO does')}",
    ]
    start = root.text("reader.multiprocessing_context")
    if start is not None and start not in _STARTS:
        raise root.error(f"reader.multiprocessing_context: {start} is none of {', '.join(_STARTS)}")
    if start is not None:
        loader.append(f"  multiprocessing_context: {start}")
    if (pin := root.flag("reader.pin_memory")) is not None:
        loader.append(f"  pin_memory: {str(pin).lower()}")
    return loader


def _storage_notes(root: Fields, notes: list[str]) -> None:
    if root.drop("dataset.data_folder"):
        notes.append("dataset.data_folder: without --data PATH the samples are made on the spot")
    if root.drop("reader.preprocess_time"):
        notes.append("reader.preprocess_time: no sleep stands for the job's own transform")
    if root.drop("storage"):
        notes.append("storage: samples are read as files; mount what holds them")


def _comments(notes: Sequence[str]) -> Iterator[str]:
    for note in notes:
        yield from textwrap.wrap(
            note, 98, initial_indent="# - ", subsequent_indent="#   ", break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip


def _sourced(number: str, source: str) -> str:
    return f"{{value: {number}, source: {json.dumps(source, ensure_ascii=False)}}}"


def _plain(number: Any) -> str:
    """Six digits, with no exponent."""
    return format(Decimal(f"{number:.6g}").normalize(), "f")
