"""What the gpus check is told and what it sees."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from preflight.checks.contract import Limits, Reading
from preflight.gpu_facts import Gpu

SHARING = "or set expect.gpu_sharing to shared where that is meant"


class GpusLimits(Limits):
    """Which GPUs a job expects."""

    min_count: int = Field(ge=1, description="GPUs (or MIG slices) that a job here can use")
    name: str | None = Field(
        default=None, description="regular expression over the whole NVML name of every GPU"
    )
    max_foreign_memory_gib: float = Field(
        ge=0, description="more in use on a GPU that should be ours alone is somebody else's"
    )

    @field_validator("name")
    @classmethod
    def _compiles(cls, name: str | None) -> str | None:
        try:
            re.compile(name or "")
        except re.error as error:
            raise ValueError(f"{name!r} is not a regular expression: {error}") from None
        return name


class GpusReading(Reading):
    """The GPUs as found."""

    gpus: tuple[Gpu, ...]
    mine: tuple[str, ...] = Field(
        description="GPUs that CUDA_VISIBLE_DEVICES leaves us, those in MIG without a slice too"
    )
    usable: tuple[str, ...] = Field(description="the devices that CUDA may use, MIG slices apart")
    cuda_visible_devices: str | None
    pci_gpus: int = Field(description="NVIDIA GPUs on the PCI bus; 0 where it is hidden")
    forbidden: int = Field(description="GPUs that NVML counts and does not let us open")
    gpu_nodes: int = Field(description="/dev/nvidia0, /dev/nvidia1, ...")
    node: Literal["exclusive", "shared"] | None
    gpu_sharing: Literal["exclusive", "shared"]
    nvml: bool = Field(description="NVML told; false on systems that have none (Jetson, WSL)")
