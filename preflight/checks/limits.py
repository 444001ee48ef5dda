"""limits: does the container leave the planned loader enough CPUs, memory, files and processes?

Reads cgroups and resource limits only. What the limits do to the rate is measured by dataloader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from preflight.checks.contract import Check, Limits, Reading, Unit
from preflight.diagnosis.remedies import more_memory
from preflight.judge import Miss, at_least, at_most, holds
from preflight.model import Finding
from preflight.outcome import Outcome

# torch keeps one descriptor per tensor in flight, on both sides of the socket it arrives by
# (pytorch/pytorch#973); 256 are left to the interpreter, libraries and the training code.
_FILES_PER_BATCH, _FILES_FOR_OTHERS = 2, 256
# A worker is a process and its queue's feeder thread; 64 for the training process's own threads.
_TASKS_PER_WORKER, _TASKS_FOR_OTHERS = 2, 64


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


def observe(unit: Unit) -> LimitsReading:
    """Set the facts beside what the job plans."""
    facts, job = unit.facts, unit.job
    workers = job.ranks * job.num_workers
    batches = job.batches_in_flight()
    pinned = job.pinned_bytes() if facts.gpus and job.loader.pin_memory else 0
    memlock = facts.processes.memlock_bytes
    return LimitsReading(
        effective_cpus=facts.cpu.effective,
        cpus_from=facts.cpu.from_,
        online_cpus=facts.cpu.online,
        planned_workers=workers,
        guaranteed_cpus=facts.cpu.request,
        memory_headroom_gib=facts.memory.headroom_gib,
        memory_from=facts.memory.from_,
        nofile=facts.processes.nofile,
        nofile_need=_FILES_PER_BATCH * batches + _FILES_FOR_OTHERS,
        pids_free=facts.processes.free(),
        pids_need=workers * _TASKS_PER_WORKER + _TASKS_FOR_OTHERS,
        memlock_gib=None if memlock is None else memlock / 2**30,
        pinned_need_gib=pinned / 2**30,
    )


def judge(readings: Sequence[LimitsReading], limits: LimitsLimits) -> list[Finding]:
    """Hold each limit of the container against the loader's need."""
    seen = readings[0]
    findings = [_workers(seen, limits), _memory(seen, limits)]
    if seen.nofile is not None:
        cause = (
            f"{seen.nofile} open files are allowed; the loader and the training process may need "
            f"{seen.nofile_need}"
        )
        remedy = f"raise it: ulimit -n {seen.nofile_need} or docker run --ulimit nofile=65536"
        findings.append(
            at_least("limits.nofile", seen.nofile, seen.nofile_need, "files", Miss(cause, remedy))
        )
    if seen.pids_free is not None:
        cause = (
            f"{seen.pids_free} more processes and threads are allowed; the loader and the training "
            f"process may need {seen.pids_need}"
        )
        remedy = "raise it: docker run --pids-limit, the kubelet's podPidsLimit, or ulimit -u"
        findings.append(
            at_least("limits.pids", seen.pids_free, seen.pids_need, "tasks", Miss(cause, remedy))
        )
    if seen.memlock_gib is not None and seen.pinned_need_gib > 0:
        cause = "memory that RDMA or mlock pins counts against this; CUDA's own pinning does not"
        miss = Miss(cause, "docker run --ulimit memlock=-1 if RDMA is used", outcome=Outcome.WARN)
        findings.append(
            at_least("limits.memlock", seen.memlock_gib, seen.pinned_need_gib, "GiB", miss)
        )
    if seen.guaranteed_cpus is not None and seen.guaranteed_cpus < seen.effective_cpus:
        cause = f"only {seen.guaranteed_cpus:g} CPUs are requested: the rest is lent by neighbours"
        fit = max(1, int(seen.guaranteed_cpus))
        remedy = f"request {seen.planned_workers} CPUs, or plan {fit} workers"
        miss = Miss(cause, remedy, outcome=Outcome.WARN)
        findings.append(
            at_least("limits.cpu_weight", seen.guaranteed_cpus, seen.planned_workers, "CPUs", miss)
        )
    return findings


def _workers(seen: LimitsReading, limits: LimitsLimits) -> Finding:
    id, unit, most = "limits.workers_per_cpu", "workers per CPU", limits.max_workers_per_cpu
    workers, cpus = seen.planned_workers, seen.effective_cpus
    ratio = round(workers / cpus, 3)
    cause = (
        f"{workers} loader workers share {cpus:g} CPUs "
        f"({seen.cpus_from}, on a node with {seen.online_cpus})"
    )
    limit, outcome = (most, Outcome.FAIL) if ratio > most else (1.0, Outcome.WARN)
    need, fit = math.ceil(workers / limit), max(1, int(cpus * limit))
    remedy = f"give the container {need} CPUs or set loader.num_workers to {fit}"
    miss = Miss(cause, remedy, outcome=outcome)
    if workers == 1:  # one has to run, even where less than one CPU is given
        return holds(id, True, ratio, miss, unit)
    source = limits.source("max_workers_per_cpu") if outcome is Outcome.FAIL else None
    return at_most(id, ratio, limit, unit, miss, source=source)


def _memory(seen: LimitsReading, limits: LimitsLimits) -> Finding:
    cause = f"{seen.memory_headroom_gib:.2f} GiB can still be allocated ({seen.memory_from})"
    need = limits.min_memory_headroom_gib
    seen_gib = round(seen.memory_headroom_gib, 3)
    more = more_memory(need - seen_gib)
    source = limits.source("min_memory_headroom_gib")
    miss = Miss(cause, f"end what fills it, or {more}")
    return at_least("limits.memory_headroom", seen_gib, need, "GiB", miss, source=source)


CHECK = Check(
    id="limits",
    title="CPU, memory and process limits",
    about=(
        "Reads the cgroup's CPU quota, cpuset and weight, the memory that can still be allocated, "
        "and the limits on processes and open files, and holds them against the loader the job "
        "plans. os.cpu_count() and nproc do not see a CPU quota; this check does."
    ),
    limits=LimitsLimits,
    reading=LimitsReading,
    findings={
        "workers_per_cpu": "give the container more CPUs, or lower loader.num_workers",
        "memory_headroom": "raise the container's memory limit, or end what fills it",
        "nofile": "raise the limit on open files (ulimit -n, docker run --ulimit nofile)",
        "pids": "raise the limit on processes (docker run --pids-limit, podPidsLimit, ulimit -u)",
        "memlock": "docker run --ulimit memlock=-1 where RDMA is used",
        "cpu_weight": "request as many CPUs as there are workers",
    },
    observe=observe,
    judge=judge,
    isolate=False,
)
