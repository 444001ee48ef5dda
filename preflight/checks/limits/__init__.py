"""limits: does the container leave the planned loader enough CPUs, memory, files and processes?

Reads cgroups and resource limits only, and how the container was started. What the limits do to
the rate is measured by dataloader.
"""

from __future__ import annotations

from preflight.checks.contract import Check, Unit
from preflight.checks.limits.judge import judge
from preflight.checks.limits.reading import LimitsLimits, LimitsReading

# torch keeps one descriptor per tensor in flight, on both sides of the socket it arrives by
# (pytorch/pytorch#973); 256 are left to the interpreter, libraries and the training code.
_FILES_PER_BATCH, _FILES_FOR_OTHERS = 2, 256
# A worker is a process and its queue's feeder thread; 64 for the training process's own threads.
_TASKS_PER_WORKER, _TASKS_FOR_OTHERS = 2, 64


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
        bound_cpus=facts.cpu.bound_to,
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
        container=facts.system.container,
        root=facts.system.root,
        data=job.data if job.data_state == "ok" else None,
        data_writable_at=job.data_writable_at,
    )


CHECK = Check(
    id="limits",
    title="CPU, memory and process limits",
    about=(
        "Reads the cgroup's CPU quota, cpuset and weight, the memory that can still be allocated, "
        "and the limits on processes and open files, and holds them against the loader the job "
        "plans. os.cpu_count() and nproc do not see a CPU quota; this check does. Where a pod has "
        "a CPU request and no quota (PREFLIGHT_CPU_REQUEST, by the downward API) the request "
        "counts. In a container it also warns of root and of data that may be written to."
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
        "user": "run as another user than root (docker run --user, runAsUser)",
        "data_mount": "mount the data read-only (docker run -v ...:ro, readOnly: true)",
    },
    observe=observe,
    judge=judge,
    isolate=False,
)
