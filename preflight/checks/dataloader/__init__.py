"""dataloader: how many samples a second does the job's own DataLoader supply on this node?

The limit is the GPU's demand times min_feed_ratio, or a floor where no workload is named. The
measuring is in `preflight.measure.supply`, which alone imports torch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from preflight.checks.contract import Check, Unavailable, Unit
from preflight.checks.dataloader.explained import CAUSES, EXAMPLES
from preflight.checks.dataloader.judge import judge
from preflight.checks.dataloader.reading import DataloaderLimits, DataloaderReading, limit_of
from preflight.diagnosis.headroom import refusal
from preflight.diagnosis.remedies import FEWER_BATCHES
from preflight.facts import Facts
from preflight.job import Job
from preflight.measure.cpu_request import bind_to_request


def observe(unit: Unit) -> DataloaderReading:
    """Run the loader until the rate is clear."""
    requested = unit.facts.cpu.bound_to
    cpu = bind_to_request(unit.machine, unit.facts.cpu, unit.job.seed)
    unit = replace(unit, facts=unit.facts.model_copy(update={"cpu": cpu}))
    limits, job = unit.limits, unit.job
    reading = DataloaderReading(
        rank=unit.rank,
        dataset=job.dataset,
        demand_samples_per_s=limits.demand_samples_per_s,
        demand_from=limits.demand_from,
        limit_samples_per_s=limit_of(limits),
        max_disturbance=job.stats.max_disturbance,
        workload=job.workload,
        data=job.data,
        data_state=None if job.dataset is not None and may_load(job) else job.data_state,
        ranks=job.ranks,
        num_workers=job.num_workers,
        batch_size=job.loader.batch_size,
        prefetch_factor=job.loader.prefetch_factor,
        quota_cpus=cpu.binding_quota(),
        effective_cpus=cpu.effective,
        node_cpus=cpu.online,
        data_on=job.data_on,
        requested_cpus=requested,
        bound_cpus=cpu.bound_to,
        seed=job.seed,
    )
    if not may_load(job) or reading.without_demand():
        unit.ready()
        return reading
    check_memory(job, limits, unit.facts)
    unit.progress("importing torch")
    from preflight.measure.supply import measure

    def update(fields: dict[str, Any]) -> DataloaderReading:
        changed = reading.model_copy(update=fields)
        rate, demand = changed.supply_samples_per_s, changed.demand_samples_per_s
        if rate is None or not demand:
            return changed
        ratio = rate.value / demand
        predicted = {"predicted_utilisation_percent": round(100 * min(1.0, ratio), 2)}
        return changed.model_copy(update={"feed_ratio": round(ratio, 4), **predicted})

    fields = measure(unit, reading.limit_samples_per_s, lambda fields: unit.emit(update(fields)))
    return update(fields)


def may_load(job: Job) -> bool:
    """Whether the first look at --data found what can be loaded; a data set may read any file."""
    fine = (None, "ok") if job.dataset is None else (None, "ok", "not_a_folder")
    return job.data_state in fine


def check_memory(job: Job, limits: DataloaderLimits, facts: Facts) -> None:
    """Refuse to start what the kernel would have to kill.

    Raises:
        Unavailable: with the arithmetic.
    """
    workers = job.ranks * (job.num_workers * limits.worker_memory_gib + limits.main_memory_gib)
    pinned = job.pinned_bytes() if job.loader.pin_memory and facts.gpus else 0
    in_workers = job.ranks * job.num_workers * (job.batch_bytes() + job.sample.encoded_bytes)
    batches = (job.shm_bytes() + pinned + in_workers) / 2**30
    what = (
        f"{job.ranks} x ({job.num_workers} workers x {limits.worker_memory_gib:g} GiB + "
        f"{limits.main_memory_gib:g}) + {batches:.2f} GiB of batches"
    )
    headroom_gib = facts.memory.headroom_gib
    refused = refusal(
        what, workers + batches, limits.max_memory_share, headroom_gib, or_else=FEWER_BATCHES
    )
    if refused is not None:
        raise Unavailable(refused)


CHECK = Check(
    id="dataloader",
    title="DataLoader supply",
    about=(
        "Runs torch's DataLoader with the workload's own settings on real JPEG decoding and counts "
        "finished samples in the workers, in blocks of a quarter of a second, until the rate is "
        "clearly above or below the limit. Blocks in which other processes took the CPUs are set "
        "aside. A pod with a CPU request and no quota is measured on that many CPUs. The supply is "
        "held against the GPU's demand: with loading overlapped, GPU utilisation is about min(1, "
        "supply / demand). Why it misses is read from what the workers did meanwhile."
    ),
    limits=DataloaderLimits,
    reading=DataloaderReading,
    findings={
        "data": "name a folder that holds images and that the node can read (--data)",
        "demand": (
            "name the GPU (--gpu NAME) or set dataloader.demand_samples_per_s; a workload file of "
            "DLIO or MLPerf Storage says it: preflight thresholds import FILE"
        ),
        "supply": "give the container more CPUs, or raise loader.num_workers where CPUs are idle",
        "reference": "name the workload (--workload) to have it judged",
        "cpu_request": "give the pod a CPU limit, or let it bind its processes to CPUs",
        "first_batch": "start fewer workers, or set loader.multiprocessing_context to fork",
        "start_up": "start fewer workers, or set loader.multiprocessing_context to fork",
        "corrupt_samples": "replace the files named, or raise dataloader.max_corrupt_percent",
        "contended": "keep neighbours off the node's CPUs while it is judged",
    },
    observe=observe,
    judge=judge,
    needs=("shm",),
    # A device that failed in these two is not given to a rank.
    uses=("driver_cuda", "pinned_copy", "storage"),
    fan_out="rank",
    causes=CAUSES,
    examples=EXAMPLES,
)
