"""What the pinned_copy check holds a GPU's copies to, and what it saw."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from preflight.checks.contract import Limits, Reading
from preflight.gpu_facts import PcieLink
from preflight.model import Rate

Fraction = Annotated[float, Field(gt=0, le=2)]
Speed = Annotated[float, Field(gt=0)]


class PinnedCopyLimits(Limits):
    """How fast copies have to be, and how they are made."""

    piece_mib: int = Field(gt=0, le=4096, description="one copy; the median of many is judged")
    measure_s: float = Field(gt=0, description="each kind of copy is repeated for so long")
    wake_s: float = Field(ge=0, description="copying before that: an idle link is slower")
    link_gb_per_s_x16: dict[str, Speed] = Field(
        description="what a PCIe generation carries one way over 16 lanes; fewer in proportion"
    )
    min_fraction_of_link_by_gen: dict[str, Fraction] = Field(
        description="of that, at least; a generation that is not named is never failed by it"
    )
    warn_fraction_of_link_by_gen: dict[str, Fraction] = Field(description="under it: a warning")
    min_h2d_gb_per_s: float | None = Field(
        default=None, gt=0, description="host to device; a site's floor fails, a shipped one warns"
    )
    min_d2h_gb_per_s: float | None = Field(default=None, gt=0, description="likewise, to the host")
    site_floors: tuple[str, ...] | None = Field(
        default=None, description="filled in: the keys that no shipped file gave"
    )
    warn_pinned_over_pageable: float | None = Field(
        default=None, gt=0,
        description="pinned must be so many times as fast; null: pageable copies are not made",
    )  # fmt: skip
    process_memory_gib: float = Field(gt=0, description="one GPU's process, without its pieces")
    max_memory_share: float = Field(gt=0, le=1, description="of the memory headroom, predicted")


class PinnedCopyReading(Reading):
    """What copies of one GPU did. None: not measured, or not told."""

    subject: str
    h2d_gb_per_s: Rate | None = None
    d2h_gb_per_s: Rate | None = None
    pageable_h2d_gb_per_s: Rate | None = None
    looks: int = Field(default=0, description="2: the pinned copies were measured again and pooled")
    verified: bool | None = Field(default=None, description="every byte came back as it was sent")
    link: PcieLink | None = Field(default=None, description="what the verdict goes by")
    link_seen: Literal["during the copy", "idle"] | None = None
    no_link_verdict: str | None = Field(description="why a PCIe link says nothing of this device")
    host_memory: Literal["near", "far", "unknown"] = Field(
        default="unknown", description="far: on another NUMA node than the GPU"
    )
    gpu_numa_node: int | None
    allowed_cpus: str | None = Field(default=None, description="before the process was bound")
    alone: bool | None = Field(description="nobody else is on the GPU or beside it on the node")
    error: str | None = Field(default=None, description="what CUDA said when it refused")
    error_code: int | None = None
    error_step: str | None = None
