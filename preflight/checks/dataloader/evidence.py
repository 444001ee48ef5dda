"""What was seen of a loader beside its rate: where its time went, and what other settings gave."""

from __future__ import annotations

from pydantic import Field

from preflight.model import Finite, Rate, Record


class CpuBudget(Record):
    """Milliseconds of CPU that one sample cost in the running loader."""

    getitem_ms: Finite | None = Field(description="fetch, decode, transform")
    collate_ms: Finite | None = Field(description="the rest of the workers: collate, /dev/shm")
    main_ms: Finite | None = Field(description="the process that takes the batches")


class Evidence(Record):
    """What the workers of one rank did while its rate was measured.

    Shares are of the workers' wall time. None: the host hides it, or it was not asked.
    """

    getitem_share: Finite | None = Field(description="inside the data set")
    getitem_cpu_share: Finite | None = Field(description="of it, on a CPU: the calling thread's")
    collate_share: Finite | None = Field(description="inside collate, which writes to /dev/shm")
    collate_cpu_share: Finite | None = Field(
        default=None, description="inside collate and on a CPU: the calling thread's"
    )
    worker_cpu_share: Finite | None = Field(description="on a CPU, all threads of the workers")
    worker_delay_share: Finite | None = Field(description="could have run and had no CPU")
    main_cpu_share: Finite | None = Field(description="of the process that takes the batches")
    disk_wait_share: Finite | None = Field(
        description="inside the data set, in the state D: uninterruptible"
    )
    waits: dict[str, float] = Field(
        default_factory=dict,
        description="inside the data set, by what a worker waited in: socket, lock, sleep, poll, "
        "pipe, disk, other; work: outside it, for something to do. Empty: it is hidden",
    )
    looks: int = Field(default=0, description="how often a worker was looked at")
    read_bytes_per_sample: Finite | None = Field(description="that read(2) returned")
    disk_bytes_per_sample: Finite | None = Field(description="that a block device had to give")
    major_faults_per_s: Finite | None = None
    cpu_weight: int | None = None
    slow_line: str | None = Field(default=None, description="file:line the workers were seen in")


class Trial(Record):
    """A setting of the loader, tried for a moment. Others' share of the CPUs is taken off."""

    num_workers: int
    prefetch_factor: int | None
    samples_per_s: Rate = Field(description="of one rank, while all ranks do the same")


class Recommended(Record):
    """The settings this node can use best, of those that were tried; they may be the job's own."""

    num_workers: int
    prefetch_factor: int
    samples_per_s: Rate = Field(description="when tried: of one rank, while all ranks do the same")
    call: str | None = Field(
        default=None, description="a DataLoader(...) to copy; None: no change is worth it"
    )


class WhatIf(Record):
    """What other settings of the loader would change."""

    trials: tuple[Trial, ...] = Field(
        default=(), description="the first is the loader as it is, none where nothing was tried"
    )
    cpus_needed: int | None = Field(default=None, description="at least, for the demand")
    cached_samples_per_s: Finite | None = Field(
        default=None, description="were all data in memory; None where they are, or it is unknown"
    )
    notes: tuple[str, ...] = Field(default=(), description="what else would change, in words")
    reason: str | None = Field(default=None, description="why nothing, or no more, was tried")
