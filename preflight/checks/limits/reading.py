"""What the limits check holds the container to, and what it saw."""

from __future__ import annotations

from pydantic import Field

from preflight.checks.contract import Limits, Reading


class LimitsLimits(Limits):
    """What the planned loader needs of the container."""

    max_workers_per_cpu: float = Field(
        gt=0, description="more loader workers per CPU than this fail"
    )
    min_memory_headroom_gib: float = Field(ge=0, description="memory that must still be free")


class LimitsReading(Reading):
    """What the container may use. None is unlimited or unknown."""

    effective_cpus: float
    cpus_from: str
    bound_cpus: int | None = Field(description="the CPU request, where no quota limits us")
    online_cpus: int
    planned_workers: int
    guaranteed_cpus: float | None
    memory_headroom_gib: float
    memory_from: str
    nofile: int | None
    nofile_need: int
    pids_free: int | None
    pids_need: int
    memlock_gib: float | None
    pinned_need_gib: float
    container: str | None = Field(description="its kind; None on a host")
    root: bool
    data: str | None = Field(description="--data, where a first look found it good")
    data_writable_at: str | None = Field(description="its mount point, where we may write to it")
