"""What the shm check holds /dev/shm to, and what it saw."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from preflight.checks.contract import Limits, Reading


class ShmLimits(Limits):
    """What /dev/shm has to offer."""

    min_free_gib: float = Field(ge=0, description="floor, whatever the loader needs")
    margin: float = Field(ge=1, description="the arithmetic need is multiplied by this")
    write: Literal["none", "bounded", "full"] = Field(description="how much is really written")
    max_memory_share: float = Field(gt=0, le=1, description="of the memory headroom, at most")
    max_stale_gib: float = Field(ge=0, description="more in forgotten files than this warns")


class ShmReading(Reading):
    """/dev/shm as found. None: not mounted, not written, not found."""

    mounted: bool
    fs_type: str | None
    size_gib: float
    free_gib: float
    need_gib: float
    memory_headroom_gib: float
    memory_limit_gib: float | None = Field(description="None without one")
    container: str | None = Field(description="its kind; None on a host")
    written_gib: float | None
    write_error: str | None
    stale_gib: float
    stale_files: tuple[str, ...]
    temporary_folder: str | None = Field(description="None: no folder is writable")
