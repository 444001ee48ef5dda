"""The two passes over the files, first touch and warm, as the reading has them.

It says how much may be read and for how long, and lets go of what was brought into memory.
"""

from __future__ import annotations

from typing import Any

from preflight.checks.contract import Unit
from preflight.checks.storage.reading import StorageLimits, StorageReading, cache_state_of
from preflight.machine.mounts import READS_ACCOUNTED
from preflight.measure.fetching import FetchResult, Readers
from preflight.measure.window import rounded

_GIB = 2**30
# Of what may be read, the first touch gets so much; the same files again are the rest.
_FIRST_TOUCH_SHARE = 0.75
_PROVED = ("cold", "cached")
_WARM_S = 1.0  # from memory: eleven blocks of some thousand files


def measure(unit: Unit, reading: StorageReading, paths: tuple[str, ...]) -> StorageReading:
    """The reading with what two passes over the files came to."""
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
