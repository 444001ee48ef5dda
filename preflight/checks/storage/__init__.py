"""storage: how fast do whole samples come off the data path, when nobody has read them before?

The reading is done by small processes in the loader's pattern (`preflight.measure.fetching`). What
may be read is bounded, what was brought into memory is let go again, and a file server is spared.
"""

from __future__ import annotations

from dataclasses import replace

from preflight.checks.contract import Check, Unavailable, Unit
from preflight.checks.storage.judge import judge
from preflight.checks.storage.passes import measure
from preflight.checks.storage.reading import StorageLimits, StorageReading, limit_of, pace_of
from preflight.diagnosis.headroom import refusal
from preflight.machine.disks import disk_model
from preflight.measure.cpu_request import bind_to_request
from preflight.measure.samples import find

_GIB = 2**30


def observe(unit: Unit) -> StorageReading:
    """Read files for the first time, then the same ones again."""
    cpu = bind_to_request(unit.machine, unit.facts.cpu, unit.job.seed)
    unit = replace(unit, facts=unit.facts.model_copy(update={"cpu": cpu}))
    job, limits = unit.job, unit.limits
    readers = job.num_workers * job.ranks
    reading = StorageReading(
        data=job.data,
        data_state=job.data_state,
        data_on=job.data_on,
        disk_model=None if job.data_on is None else disk_model(unit.machine, job.data_on.source),
        demand_samples_per_s=limits.demand_samples_per_s,
        demand_from=limits.demand_from,
        ranks=job.ranks,
        limit_samples_per_s=limit_of(limits, job.ranks),
        readers=readers,
        paced_samples_per_s=pace_of(limits, job.ranks, job.pace_ratio),
        max_read_gib=limits.max_read_share * job.max_read_gib,
        max_disturbance=job.stats.max_disturbance,
        evicted=limits.evict,
        memory_headroom_gib=unit.facts.memory.headroom_gib,
        seed=job.seed,
    )
    unit.ready()
    if job.data_state != "ok":
        return reading
    refused = refusal(
        f"{readers} readers x {limits.reader_memory_gib:g} GiB",
        readers * (limits.reader_memory_gib + job.sample.encoded_bytes / _GIB),
        limits.max_memory_share, unit.facts.memory.headroom_gib, or_else=", or use fewer workers",
    )  # fmt: skip
    if refused is not None:
        raise Unavailable(refused)
    found = find(unit)
    if found.source is None:
        return reading.model_copy(update={"data_state": found.state})
    paths = tuple(map(found.source.name, range(len(found.source))))
    reading = reading.model_copy(
        update={
            "files": len(paths), "files_complete": found.complete,
            "readers": min(readers, len(paths)),
        }
    )  # fmt: skip
    return measure(unit, reading, paths)


CHECK = Check(
    id="storage",
    title="Storage",
    about=(
        "Reads whole files of the data path as the loader does: in random order, each once, by as "
        "many processes as all ranks have workers. The first-touch rate is held against what the "
        "workload needs; the same files are then read again from memory. That a file was not in "
        "memory is proved by what the kernel counts (/proc/self/io) and said to be unknown where "
        "it cannot be (network file systems, FUSE): then the rate is an upper bound. What the "
        "check brought into memory it lets go again; a network file system is read at a bounded "
        "pace."
    ),
    limits=StorageLimits,
    reading=StorageReading,
    findings={
        "data": "name a folder that holds images and that the node can read (--data)",
        "first_touch": "keep the data on faster storage, or pack samples into larger files",
        "cache_state": "name data not read lately, or set storage.evict to true",
        "unreadable_files": "look at their permissions and at the file system's errors (dmesg)",
    },
    observe=observe,
    judge=judge,
    data=True,
)
