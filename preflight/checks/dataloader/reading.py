"""What the dataloader check holds the loader to, and what it saw."""

from __future__ import annotations

from pydantic import Field

from preflight.checks.contract import DemandLimits, Reading
from preflight.checks.dataloader.evidence import CpuBudget, Evidence, Recommended, WhatIf
from preflight.job import DataOn, DataState
from preflight.measure.stopping import Block, Decision
from preflight.model import Rate, Stage


class DataloaderLimits(DemandLimits):
    """What the loader has to supply."""

    min_feed_ratio: float = Field(gt=0, description="supply must reach this share of the demand")
    min_samples_per_s: float = Field(ge=0, description="floor where no workload is named")
    max_corrupt_percent: float = Field(ge=0, le=100)
    max_read_share: float = Field(
        gt=0, le=1, description="of what the run may still read of the data path"
    )
    max_first_batch_s: float | None = Field(default=None, gt=0)
    max_memory_share: float = Field(gt=0, le=1, description="of the memory headroom, predicted")
    worker_memory_gib: float = Field(gt=0, description="one loader worker")
    main_memory_gib: float = Field(gt=0, description="the process that holds the loader")
    what_if_s: float = Field(ge=0, description="other settings are tried for so long")


class DataloaderReading(Reading):
    """What the loader of one rank did, while those of all ranks ran."""

    rank: int = 0

    supply_samples_per_s: Rate | None = None
    demand_samples_per_s: float | None
    demand_from: str | None
    feed_ratio: float | None = None
    predicted_utilisation_percent: float | None = Field(
        default=None, description="100 x min(1, supply / demand): loading overlaps with compute"
    )
    limit_samples_per_s: float
    early: bool = False
    no_batch: bool = False
    first_batch_s: float | None = Field(default=None, description="from the start of the workers")
    shm_need_gib: float | None = Field(
        default=None, description="of the job's own data set, as large as its samples were seen"
    )
    corrupt_samples: int = 0
    corrupt_percent: float = 0.0
    corrupt_files: tuple[str, ...] = ()
    workload: str | None
    data: str | None
    data_state: DataState | None
    files: int | None = None
    ranks: int = Field(description="of the job; all of them load at once")
    alone_samples_per_s: Rate | None = Field(
        default=None, description="the same loader when the other ranks had stopped"
    )
    stages: tuple[Stage, ...] = ()
    stages_missing: dict[str, str | None] = Field(
        default_factory=dict, description="stages without a rate, and why"
    )
    limiting_stage: str | None = Field(
        default=None, description="the slowest of the stages, where one of them can be the limit"
    )
    cpu_budget: CpuBudget | None = None
    paced_samples_per_s: float | None = Field(
        default=None, description="the loader was held to this rate, to spare a file server"
    )
    budget_spent: bool = Field(
        default=False, description="it ended because the run may read no more of the data path"
    )
    read_gib: float | None = Field(default=None, description="of the data path, by this rank")
    dataset: str | None = None
    evidence: Evidence | None = None
    what_if: WhatIf | None = None
    recommended: Recommended | None = None
    dataset_kind: str | None = Field(
        default=None, description="what it returned: dataset, iterable_dataset or dataloader"
    )
    num_workers: int
    batch_size: int | None = Field(description="None: batches are made by a sampler or data set")
    prefetch_factor: int | None = Field(default=None, description="None without workers")
    window_s: float = 0.0
    decision: Decision | None = None
    blocks: tuple[Block, ...] = ()
    disturbed_share: float | None = Field(default=None, description="F; None: hidden by the host")
    max_disturbance: float = Field(description="echo of stats.max_disturbance")
    own_cpu_share: float | None = Field(default=None, description="of the effective CPUs")
    throttled_percent: float | None = Field(default=None, description="of CFS periods")
    quota_cpus: float | None = None
    effective_cpus: float
    node_cpus: int | None = Field(default=None, description="online on this node")
    data_on: DataOn | None = Field(default=None, description="the file system of the data path")
    pin_memory: bool | None = Field(default=None, description="a thread copies batches to it")
    requested_cpus: int | None = Field(
        default=None, description="to bind to: the CPU request, where no quota limits us"
    )
    bound_cpus: int | None = Field(default=None, description="None: on all CPUs that may be used")
    steal_percent: float | None = None
    load_1m: float | None = None
    drift_percent: float | None = Field(default=None, description="second half against first half")
    seed: int

    def without_demand(self) -> bool:
        """A workload is named, and nothing says what it needs: there is nothing to judge by."""
        return self.workload is not None and self.demand_samples_per_s is None


def limit_of(limits: DataloaderLimits) -> float:
    """Samples per second that one rank's loader has to reach."""
    if limits.demand_samples_per_s is not None:
        return limits.min_feed_ratio * limits.demand_samples_per_s
    return limits.min_samples_per_s
