"""feed: how busy would a GPU be that trains on what this node's loader supplies?

The loop is real, the steps only take their time. The measuring is in `preflight.measure.feeding`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from preflight.checks.contract import Check, Unavailable, Unit
from preflight.checks.feed.judge import judge
from preflight.checks.feed.prediction import predicted
from preflight.checks.feed.reading import FeedLimits, FeedReading
from preflight.facts import Facts
from preflight.measure.cpu_request import bind_to_request


def observe(unit: Unit) -> FeedReading:
    """Train on nothing until the utilisation is clear."""
    limits, job, demand = unit.limits, unit.job, unit.limits.demand_samples_per_s
    loader = _of_rank(unit.earlier.get("dataloader"), unit.rank)
    if loader is None or loader.get("supply_samples_per_s") is None:
        # It may have failed for want of memory, or hung: the loop would too.
        raise Unavailable("the loader's rate was not measured, see dataloader")
    cpu = bind_to_request(unit.machine, unit.facts.cpu, job.seed)
    unit = replace(unit, facts=unit.facts.model_copy(update={"cpu": cpu}))
    supply = loader["supply_samples_per_s"]
    batch_size = loader["batch_size"]
    if batch_size is None:
        raise Unavailable(
            "the data set makes its own batches, whose size nobody else knows, so a step cannot be "
            "as long as such a batch takes the GPU; look at dataloader's supply instead"
        )
    reading = FeedReading(
        rank=unit.rank,
        ranks=job.ranks,
        demand_samples_per_s=demand,
        demand_from=limits.demand_from,
        limit_samples_per_s=limits.min_utilisation_percent / 100 * demand,
        step_s=round(batch_size / demand, 6),
        batch_size=batch_size,
        supply_samples_per_s=supply["value"],
        max_disturbance=job.stats.max_disturbance,
        seed=job.seed,
        **predicted(
            supply, demand, job.num_workers * job.loader.prefetch_factor, limits.step_jitter_percent
        ),
    )
    unit.progress("importing torch")
    from preflight.measure.feeding import measure

    def update(fields: dict[str, Any]) -> FeedReading:
        ours = {key: value for key, value in fields.items() if key in FeedReading.model_fields}
        rate = fields.get("supply_samples_per_s")
        ours["supply_samples_per_s"] = supply["value"]
        ours["consumed_samples_per_s"] = rate
        if rate is not None:
            percent = 100 * min(1.0, rate.value / demand)
            ours["measured_utilisation_percent"] = round(percent, 2)
        return reading.model_copy(update=ours)

    def emit(fields: dict[str, Any]) -> None:
        unit.emit(update(fields))

    return update(measure(unit, reading.limit_samples_per_s, supply["value"], emit))


def applies(facts: Facts, limits: FeedLimits) -> str | None:
    """A step is as long as the demand says, so there has to be one."""
    if limits.demand_samples_per_s is None:
        return "no demand is known: name the workload and the GPU, or set the number"
    return None


def _of_rank(readings: Any, rank: int) -> dict[str, Any] | None:
    each = readings if isinstance(readings, list) else [readings]
    return next((one for one in each if one and one.get("rank") == rank), None)


CHECK = Check(
    id="feed",
    title="Feed of a training loop",
    about=(
        "Runs the job's loader under a training loop whose steps only take the time that the "
        "demand leaves them, with one step of run-ahead as on a GPU, and says how busy that GPU "
        "would be. Beside it stand the prediction 100 x min(1, supply / demand), the AU of MLPerf "
        "Storage's loop, the waits for data, and what a new epoch costs. All ranks train at once."
    ),
    limits=FeedLimits,
    reading=FeedReading,
    findings={
        "utilisation": "do as dataloader says: its supply is what is missing",
        "longest_stall": "raise loader.prefetch_factor, or look for samples that take long",
    },
    observe=observe,
    judge=judge,
    applies=applies,
    needs=("dataloader",),  # a loader that cannot feed is not worth more seconds
    uses=("storage",),
    fan_out="rank",
)
