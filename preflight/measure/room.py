"""Whether memory, /dev/shm, files and processes hold a setting that is to be tried.

What does not fit is not tried: a full /dev/shm kills workers, and one OOM kill may end the whole
container. The numbers are those of all ranks, since a setting is for the job.
"""

from __future__ import annotations

from typing import Any

from preflight.checks.contract import Unavailable, Unit
from preflight.checks.dataloader import check_memory
from preflight.job import Job
from preflight.measure.search import Setting

# As in the limits check: a process and its queue's thread per worker, a tensor's descriptor on both
# sides of a socket per batch, and what the training process needs itself.
_TASKS_PER_WORKER, _OTHER_TASKS = 2, 64
_FILES_PER_BATCH, _OTHER_FILES = 2, 256


def refused(unit: Unit, job: Job, setting: Setting, worker_gib: float | None) -> str | None:
    """Why the setting is not tried, as half a sentence; None where there is room.

    Args:
        unit: limits and facts.
        job: with the loader's own batch size.
        setting: of every rank.
        worker_gib: what a worker was seen to have to itself, None where that is hidden.
    """
    loader = job.loader.model_copy(update={"prefetch_factor": setting.prefetch_factor})
    tried = job.model_copy(update={"num_workers": setting.num_workers, "loader": loader})
    processes, shm = unit.facts.processes, unit.facts.shm
    tasks, free = tried.ranks * tried.num_workers * _TASKS_PER_WORKER, processes.free()
    if free is not None and tasks + _OTHER_TASKS > free:
        return f"they need {tasks + _OTHER_TASKS} processes and threads of {free} still allowed"
    files = _FILES_PER_BATCH * tried.batches_in_flight() + _OTHER_FILES
    if processes.nofile is not None and files > processes.nofile:
        return f"they need {files} open files of {processes.nofile} allowed"
    need_gib = tried.shm_bytes() / 2**30 * _margin(unit)
    if shm is not None and need_gib > shm.free_gib:
        return f"they need {need_gib:.2f} GiB of /dev/shm, which has {shm.free_gib:.2f}"
    seen = max(unit.limits.worker_memory_gib, worker_gib or 0.0)
    limits = unit.limits.model_copy(update={"worker_memory_gib": seen})
    try:
        check_memory(tried, limits, unit.facts)
    except Unavailable as error:
        return str(error).removeprefix("not started: ").partition(";")[0]
    return None


def _margin(unit: Unit) -> float:
    """What the shm check has multiplied the bare need with, where it has looked."""
    seen: Any = unit.earlier.get("shm")
    need_gib = seen.get("need_gib") if isinstance(seen, dict) else None
    bare = unit.job.shm_bytes() / 2**30
    return max(1.0, need_gib / bare) if need_gib else 1.0
