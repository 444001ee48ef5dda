"""What the storage check holds a data path to, and what it saw. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from preflight.checks.contract import Limits, Reading
from preflight.job import DataOn, DataState
from preflight.measure.stopping import SECOND_WINDOW_S, Block, Decision
from preflight.model import Rate

CacheState = Literal["cold", "cached", "memory", "unknown"]


class StorageLimits(Limits):
    """How fast whole samples have to come off the data path, and what may be read for that."""

    min_feed_ratio: float = Field(gt=0, description="of the demand of all ranks together")
    min_samples_per_s: float = Field(gt=0, description="floor where no demand is known, per rank")
    demand_samples_per_s: float | None = Field(default=None, gt=0, description="per rank")
    demand_from: str | None = Field(default=None, description="filled in: set, site or gpu table")
    reference_demand_samples_per_s: float | None = Field(
        default=None, gt=0, description="filled in, and not judged by: see dataloader"
    )
    evict: bool = Field(
        description="true: files are advised out of memory before they are read, whoever wants them"
    )
    max_hit_percent: float = Field(
        ge=0, le=100, description="of the bytes from memory: more is not a first touch"
    )
    max_read_share: float = Field(
        gt=0, le=1, description="of run.max_read_gib; the rest is the loader's"
    )
    reader_memory_gib: float = Field(gt=0, description="one reading process, before its file")
    max_memory_share: float = Field(gt=0, le=1, description="of the memory headroom, predicted")


class StorageReading(Reading):
    """The data path as it was read. None: not measured, or hidden."""

    data: str | None
    data_state: DataState | None
    data_on: DataOn | None = Field(description="None where the mount table is hidden")
    disk_model: str | None = Field(default=None, description="as the disk names itself")
    demand_samples_per_s: float | None = Field(description="per rank")
    demand_from: str | None
    ranks: int
    limit_samples_per_s: float = Field(description="of all ranks together")
    readers: int = Field(description="processes that read at once: workers x ranks, or fewer files")
    files: int | None = Field(default=None, description="found in the data path")
    files_complete: bool = Field(default=False, description="there are no more than these")
    mean_file_bytes: float | None = None
    first_touch_samples_per_s: Rate | None = None
    first_touch_gb_per_s: float | None = Field(default=None, description="10^9 bytes/s")
    opens_per_s: float | None = Field(
        default=None, description="files the readers would open and stat if they did nothing else"
    )
    cache_state: CacheState | None = Field(
        default=None, description="cold: proved by /proc/self/io; unknown: cannot be told here"
    )
    hit_percent: float | None = Field(default=None, description="of the bytes, from memory")
    warm_samples_per_s: Rate | None = Field(default=None, description="the same files, at once")
    warm_hit_percent: float | None = None
    cpu_ms_per_sample: float | None = Field(default=None, description="of the readers")
    files_read: int = 0
    unreadable_files: int = 0
    read_gib: float = Field(default=0.0, description="of the run's budget, warm reads included")
    max_read_gib: float = Field(description="what this check may read")
    paced_samples_per_s: float | None = Field(
        default=None, description="the readers were held to this rate, to spare a file server"
    )
    ended: Literal["decided", "time", "files", "bytes", "no_answer"] | None = None
    window_s: float = 0.0
    decision: Decision | None = None
    blocks: tuple[Block, ...] = ()
    disturbed_share: float | None = Field(default=None, description="None: hidden by the host")
    max_disturbance: float = Field(description="echo of stats.max_disturbance")
    evicted: bool = Field(description="files were advised out of memory beforehand")
    brought_in_files: int = Field(default=0, description="whose pages this check brought to memory")
    let_go_files: int = Field(default=0, description="of these, advised out of memory again")
    memory_headroom_gib: float
    seed: int

    def read_through_too_soon(self) -> bool:
        """No file was left before two windows of the stopping rule could be over."""
        return self.ended == "files" and self.window_s < 2 * SECOND_WINDOW_S

    def data_gib(self) -> float | None:
        """Size of the whole data set; None where it was not seen whole."""
        if not self.files_complete or self.files is None or self.mean_file_bytes is None:
            return None
        return self.files * self.mean_file_bytes / 2**30

    def open_share(self) -> float:
        """Of the readers' time, spent in opening files."""
        rate, opens = self.first_touch_samples_per_s, self.opens_per_s
        return min(1.0, rate.value / opens) if rate is not None and opens else 0.0


def limit_of(limits: StorageLimits, ranks: int) -> float:
    """Samples per second that all ranks together need."""
    return ranks * needed_of(limits)


def needed_of(limits: StorageLimits) -> float:
    """Samples per second that one rank needs."""
    if limits.demand_samples_per_s is not None:
        return limits.min_feed_ratio * limits.demand_samples_per_s
    return limits.min_samples_per_s


def pace_of(limits: StorageLimits, ranks: int, pace_ratio: float | None) -> float | None:
    """Samples per second that the readers are held to; None: as fast as they can."""
    if pace_ratio is None:
        return None
    return pace_ratio * ranks * (limits.demand_samples_per_s or limits.min_samples_per_s)


def cache_state_of(
    on: DataOn | None, accounted: bool, hit_percent: float | None, max_hit_percent: float
) -> CacheState:
    """Where the bytes came from, as far as it is proved.

    `accounted`: the kernel counts this file system's reads for the process that asks.
    """
    if on is not None and on.kind == "memory":
        return "memory"
    if on is None or on.kind != "local" or hit_percent is None:
        return "unknown"
    if hit_percent <= max_hit_percent:  # bytes that were counted came from a device, whoever counts
        return "cold"
    return "cached" if accounted else "unknown"
