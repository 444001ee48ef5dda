"""What the training job looks like: the sample, the loader, the data path. Pure.

These are the reserved sections of a threshold file that say what is to be measured; how well it
has to do is each check's own section. No field has a default that could decide a verdict: the
numbers live in thresholds/default.yaml.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

DTYPE_BYTES = {"uint8": 1, "float16": 2, "float32": 4, "int64": 8}
PAGE_BYTES = 4096  # tensors in /dev/shm are rounded up to pages

Positive = Annotated[int, Field(gt=0)]
Codec = Literal["jpeg", "raw"]
DataState = Literal["ok", "no_answer", "unreadable", "empty", "not_a_folder", "no_image"]


class Section(BaseModel):
    """A closed section of a threshold file: unknown keys and wrong types are errors."""

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )


class Sample(Section):
    """One sample, on disk and as the tensor the GPU gets."""

    codec: Codec = Field(description="jpeg: decode, crop, flip; raw: the bytes are the tensor")
    encoded_bytes: int = Field(gt=0, description="bytes of one sample on disk")
    shape: tuple[Positive, ...] = Field(min_length=1, max_length=6, strict=False)
    dtype: Literal["uint8", "float16", "float32", "int64"]

    @model_validator(mode="after")
    def _an_image_has_channels_height_and_width(self) -> Sample:
        if self.codec == "jpeg" and (len(self.shape) != 3 or self.shape[0] not in (1, 3)):
            raise ValueError(
                f"shape is {list(self.shape)}, but an image needs [channels, height, width] with 1 "
                "or 3 channels: correct it, or set codec to raw"
            )
        return self

    def tensor_bytes(self) -> int:
        """Bytes of one sample as a tensor."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


class Loader(Section):
    """The DataLoader's arguments, in PyTorch's words."""

    num_workers: Positive | Literal["auto"] = Field(
        description="auto: min(8, effective CPUs / ranks)"
    )
    prefetch_factor: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    pin_memory: bool = Field(description="applied when a GPU is visible")
    persistent_workers: bool
    in_order: bool
    multiprocessing_context: Literal["default", "fork", "forkserver", "spawn"]
    timeout_s: int = Field(
        ge=1, description="DataLoader(timeout=...): no batch for so long is an error"
    )
    ranks: Positive | Literal["auto"] = Field(
        description="training processes; auto: visible GPUs, else 1"
    )


class Stats(Section):
    """When a measurement is finished (see `preflight.measure.stopping`)."""

    block_s: float = Field(gt=0, description="length of one block")
    warmup_s: float = Field(ge=0, description="seconds dropped after every worker's first sample")
    max_s: float = Field(gt=0, description="longest measuring window")
    alpha_pass: float = Field(gt=0, lt=1)
    alpha_fail: float = Field(gt=0, lt=1)
    max_disturbance: float = Field(gt=0, lt=1, description="kept blocks lie under this share")
    close_ratio: float = Field(gt=0, lt=1, description="undecided, but this near: a warning")
    hopeless_ratio: float = Field(
        ge=0, lt=1, description="under this share of the limit: fail early"
    )
    no_batch_s: float = Field(gt=0, description="a living loader without a batch for so long fails")
    stage_s: float = Field(gt=0, description="each stage alone is measured for so long")


class Consumer(Section):
    """What the training process itself takes from the host while it is fed."""

    host_cpus: float = Field(ge=0, description="CPUs that one rank's training process keeps busy")
    multi_gpu_demand_ratio: float = Field(
        gt=0, le=1, description="of one GPU's demand, for each of several that train together"
    )


FsKind = Literal["local", "network", "memory", "unknown"]


class DataOn(Section):
    """The file system that the data path lies on, as the mount table has it."""

    point: str = Field(description="where it is mounted")
    fs_type: str
    source: str = Field(description="the device or the server")
    kind: FsKind = Field(
        description="network: others read from it too, and its reads are not accounted; unknown: "
        "what is beneath cannot be seen (fuse, overlay)"
    )


class Job(Section):
    """The plan's answer to "what is measured": sections resolved against this machine."""

    sample: Sample
    loader: Loader
    stats: Stats
    consumer: Consumer
    workload: str | None = Field(description="the named workload, None for the reference image")
    num_workers: int = Field(ge=1, description="loader.num_workers with auto resolved")
    ranks: int = Field(ge=1, description="loader.ranks with auto resolved")
    gpu_sharing: Literal["exclusive", "shared"] = Field(description="expect.gpu_sharing")
    data: str | None = Field(description="--data, None: generated")
    data_state: DataState | None = Field(description="what a first look at --data gave")
    data_writable_at: str | None = Field(
        default=None, description="the mount point of --data, where it may be written to"
    )
    data_on: DataOn | None = Field(default=None, description="what --data lies on")
    dataset: str | None = Field(default=None, description="--dataset module:factory, the job's own")
    explain: bool = Field(default=False, description="stages are measured on a pass, too")
    max_read_gib: float = Field(gt=0, description="run.max_read_gib: of the data path, all ranks")
    pace_ratio: float | None = Field(
        default=None, description="loads are held to so many times the demand; None: not at all"
    )
    seed: int

    def batch_bytes(self) -> int:
        """Bytes of one collated batch in /dev/shm, rounded up to pages."""
        raw = self.loader.batch_size * self.sample.tensor_bytes()
        return -(-raw // PAGE_BYTES) * PAGE_BYTES

    def pinned_bytes(self) -> int:
        """Page-locked memory of all ranks: torch rounds each batch up to a power of two.

        pytorch/pytorch#95823.
        """
        rounded = 1 << (self.batch_bytes() - 1).bit_length()
        return self.ranks * rounded * self.batches_in_flight()

    def batches_in_flight(self) -> int:
        """W x P + 2 per rank: queued ones, the one in use and the one being handed over.

        Measured on torch 2.13; the iterator asserts that no more than W x P are outstanding.
        """
        return self.num_workers * self.loader.prefetch_factor + 2

    def shm_bytes(self) -> int:
        """Shared memory that all ranks' loaders hold at their peak, without margin."""
        return self.ranks * self.batch_bytes() * self.batches_in_flight()
