"""What the feed check holds the training loop to, and what it saw."""

from __future__ import annotations

from pydantic import Field

from preflight.checks.contract import DemandLimits, Reading
from preflight.measure.stopping import Block, Decision
from preflight.model import Rate


class FeedLimits(DemandLimits):
    """How busy the emulated GPU has to be, and how its steps are."""

    min_utilisation_percent: float = Field(gt=0, le=100)
    step_jitter_percent: float = Field(
        ge=0, le=100, description="standard deviation of a step's length"
    )
    sync_every_step: bool = Field(
        description="the host waits for each step to end, as MLPerf Storage's loop does"
    )
    serial_s: float = Field(ge=0, description="seconds of that loop after the verdict, for its AU")
    max_read_share: float = Field(
        gt=0, le=1, description="of what the run may still read of the data path"
    )
    max_epoch_s: float = Field(
        ge=0, description="new epochs are tried where two of them take no longer"
    )
    max_longest_stall_s: float | None = Field(default=None, gt=0)


class FeedReading(Reading):
    """What the loop of one rank did, while those of all ranks ran."""

    rank: int = 0
    ranks: int
    demand_samples_per_s: float
    demand_from: str | None
    limit_samples_per_s: float
    step_s: float
    batch_size: int
    supply_samples_per_s: float | None = Field(description="as dataloader measured it")
    predicted_utilisation_percent: float | None = None
    predicted_low_percent: float | None = Field(
        default=None, description="from the supply's interval; wider where few batches are ahead"
    )
    predicted_high_percent: float | None = None
    consumed_samples_per_s: Rate | None = None
    measured_utilisation_percent: float | None = None
    au_percent: float | None = Field(
        default=None, description="the same of a loop that waits for every step (MLPerf Storage)"
    )
    first_batch_s: float | None = None
    stalled_steps_percent: float | None = Field(default=None, description="steps that waited")
    longest_stall_s: float | None = None
    new_epoch_s: float | None = Field(
        default=None, description="from an epoch's last batch to the next one's first"
    )
    new_epoch_restarted_s: float | None = Field(
        default=None, description="the same with persistent_workers: false"
    )
    no_batch: bool = False
    early: bool = False
    budget_spent: bool = False
    decision: Decision | None = None
    blocks: tuple[Block, ...] = ()
    window_s: float = 0.0
    disturbed_share: float | None = None
    max_disturbance: float
    own_cpu_share: float | None = None
    paced_samples_per_s: float | None = None
    read_gib: float | None = None
    seed: int
