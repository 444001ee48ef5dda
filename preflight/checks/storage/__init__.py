"""storage: how fast do whole samples come off the data path, when nobody has read them before?

The reading is done by small processes in the loader's pattern (`preflight.measure.fetching`). What
may be read is bounded, what was brought into memory is let go again, and a file server is spared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from preflight.checks.contract import Check, Unavailable, Unit
from preflight.checks.storage.judge import judge
from preflight.checks.storage.reading import (
    StorageLimits,
    StorageReading,
    cache_state_of,
    limit_of,
    pace_of,
)
from preflight.diagnosis.headroom import refusal
from preflight.machine.disks import disk_model
from preflight.machine.mounts import READS_ACCOUNTED
from preflight.measure.cpu_request import bind_to_request
from preflight.measure.fetching import FetchResult, Readers
from preflight.measure.samples import find
from preflight.measure.window import rounded

_GIB = 2**30
# Of what may be read, the first touch gets so much; the same files again are the rest.
_FIRST_TOUCH_SHARE = 0.75
_PROVED = ("cold", "cached")
_WARM_S = 1.0  # from memory: eleven blocks of some thousand files


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
    return _measure(unit, reading, paths)


def _measure(unit: Unit, reading: StorageReading, paths: tuple[str, ...]) -> StorageReading:
    job, limits = unit.job, unit.limits
    pace = reading.paced_samples_per_s
    most_bytes = int(reading.max_read_gib * _GIB)
    unit.progress(f"starting {reading.readers} readers")
    all_readers = Readers(
        paths, reading.readers, machine=unit.machine, cpu=unit.facts.cpu, stats=job.stats,
        seed=job.seed,
    )  # fmt: skip

    def note(samples: int, seconds: float) -> None:
        unit.progress(f"{samples} files read in {seconds:.0f} s")

    with all_readers as readers:
        first = readers.first_touch(
            job.stats.max_s, limit_samples_per_s=reading.limit_samples_per_s,
            pace_samples_per_s=pace, max_bytes=int(_FIRST_TOUCH_SHARE * most_bytes),
            evict=limits.evict, note=note,
        )  # fmt: skip
        reading = reading.model_copy(update=_of_first(first, reading, limits))
        unit.emit(reading)
        if reading.data_state != "ok":
            return reading
        unit.progress("reading the same files again")
        warm = readers.again(
            _WARM_S, pace_samples_per_s=pace, max_bytes=most_bytes - first.bytes_read
        )
        proved = reading.cache_state in _PROVED
        again = {
            "warm_samples_per_s": rounded(warm.rate),
            "warm_hit_percent": _cut(warm.hit_percent, 1) if proved else None,
            "read_gib": round((first.bytes_read + warm.bytes_read) / _GIB, 4),
        }
        if proved:
            unit.progress("advising out of memory what was read into it")
            again["let_go_files"] = readers.let_go()
        return reading.model_copy(update=again)


def _of_first(first: FetchResult, reading: StorageReading, limits: StorageLimits) -> dict[str, Any]:
    """What the first touch came to, as the reading has it."""
    on = reading.data_on
    accounted = on is not None and on.fs_type in READS_ACCOUNTED
    state = reading.data_state
    if first.ended == "no_answer":
        state = "no_answer"
    elif not first.samples and first.errors:
        state = "unreadable"
    cache_state = cache_state_of(on, accounted, first.hit_percent, limits.max_hit_percent)
    return {
        "data_state": state,
        "first_touch_samples_per_s": rounded(first.rate),
        "first_touch_gb_per_s": _cut(first.gb_per_s, 4),
        "opens_per_s": _cut(first.opens_per_s, 1),
        "hit_percent": _cut(first.hit_percent, 1) if cache_state in _PROVED else None,
        "cache_state": cache_state,
        "cpu_ms_per_sample": _cut(first.cpu_ms_per_sample, 4),
        "files_read": first.samples,
        "unreadable_files": first.errors,
        "mean_file_bytes": _cut(first.bytes_read / first.samples if first.samples else None, 0),
        "read_gib": round(first.bytes_read / _GIB, 4),
        "ended": first.ended,
        "window_s": round(first.seconds, 3),
        "decision": first.decision,
        "blocks": first.blocks,
        "brought_in_files": first.brought_in,
        "disturbed_share": _cut(first.disturbed_share, 4),
    }  # fmt: skip


def _cut(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


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
