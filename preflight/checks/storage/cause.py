"""Why a data path is too slow, or why nobody can say, from what was counted. Pure.

The node is blamed for a disk of its own alone: proved cold, undisturbed, and known by its model.
"""

from __future__ import annotations

import re

from preflight.checks.storage.reading import StorageReading
from preflight.judge import Miss
from preflight.outcome import Blame, Outcome

_MOSTLY_OPENING = 0.5
# Models of disks that are a volume of the cloud's or of a storage array: their speed is rented.
_NOT_THE_NODES = re.compile(
    r"elastic block store|persistentdisk|virtual|qemu|vbox|vmware|iscsi|netapp|lun\b|pure|cloud",
    re.IGNORECASE,
)


def of_missing(seen: StorageReading) -> Miss:
    """Why the rate is under the limit, whom to ask, and what helps."""
    where, rate = _where(seen), seen.first_touch_samples_per_s
    speed = "" if seen.first_touch_gb_per_s is None else f", {seen.first_touch_gb_per_s:.3g} GB/s"
    shown = "0" if rate is None else f"{rate.value:,.0f}"
    cause = f"{seen.readers} readers got {shown} files/s{speed} from {where}"
    if seen.cache_state == "cached":
        cause += f", though {seen.hit_percent:.0f} % of the bytes came from memory"
    elif seen.cache_state == "unknown":
        cause += ", though memory may have helped"
    remedies = [_from_memory(seen)]
    if seen.open_share() >= _MOSTLY_OPENING:
        cause += f"; {seen.open_share():.0%} of their time went into opening files"
        remedies.append("pack samples into larger files (tar shards)")
    kind = seen.data_on.kind if seen.data_on is not None else "unknown"
    if kind == "network":
        remedies.append(
            "copy the data to a local disk before the job, or look at the file server and the "
            "network; more loader workers help where each read only waits"
        )
        return _miss(cause, remedies, Blame.SHARED)
    remedies.append("keep the data on a faster disk, or lower what is asked of it")
    return _miss(cause, remedies, Blame.NODE if _is_the_nodes(seen) else Blame.UNKNOWN)


def of_close(seen: StorageReading) -> Miss:
    """Near the limit, or under it in a look too short to fail anything."""
    missing, rate = of_missing(seen), seen.first_touch_samples_per_s
    if seen.read_through_too_soon():
        cause = (
            f"{seen.files_read} files were read through in {seen.window_s:.2g} s, too soon to be "
            f"sure; {missing.cause}"
        )
    else:
        between = "" if rate is None or rate.low is None else f" (at least {rate.low:,.0f})"
        cause = f"too close to the limit to be sure{between}; {missing.cause}"
    return Miss(cause, missing.remedy, Blame.UNKNOWN, Outcome.WARN)


def of_undecided(seen: StorageReading) -> Miss:
    """Why no verdict was possible, and what helps."""
    decision = seen.decision
    if decision is not None and decision.disturbed_blocks > decision.blocks / 4:
        cause = f"others used CPU in {decision.disturbed_blocks} of {decision.blocks} blocks"
        remedy, blame = "run the gate again when the neighbours are quiet", Blame.SHARED
    elif seen.ended == "bytes":
        cause = f"the {seen.max_read_gib:g} GiB that may be read were gone before it was clear"
        remedy, blame = "raise run.max_read_gib or storage.max_read_share", Blame.SETUP
    else:
        cause = f"{seen.files_read} files in {seen.window_s:.0f} s are too few to say how fast"
        remedy, blame = (
            "raise stats.max_s, or look at what is slow: the path answers",
            Blame.UNKNOWN,
        )
    return Miss(f"{cause}; read from {_where(seen)}", remedy, blame, Outcome.ERROR)


def of_cached(seen: StorageReading) -> Miss:
    """Why a rate is no more than an upper bound."""
    if seen.cache_state == "cached":
        cause = (
            f"{seen.hit_percent:.0f} % of the bytes came from memory: how fast the disk is, is not "
            "known"
        )
        remedy = (
            "name data that this node has not read lately, or let the gate advise it out of memory "
            "first (--set storage.evict=true)"
        )
    else:
        cause = (
            f"reads of {_where(seen)} are not accounted: part of them may have come from memory, "
            "so the rate is at most this"
        )
        remedy = (
            "name data that this node has not read since it was mounted; a rate under the limit "
            "would have failed all the same"
        )
    return Miss(cause, remedy, Blame.UNKNOWN, Outcome.WARN)


def _where(seen: StorageReading) -> str:
    on = seen.data_on
    if on is None:
        return str(seen.data)
    model = f", {seen.disk_model}" if seen.disk_model else ""
    return f"{on.fs_type} at {on.point} ({on.source}{model})"


def _is_the_nodes(seen: StorageReading) -> bool:
    quiet = seen.disturbed_share is not None and seen.disturbed_share < seen.max_disturbance
    own = seen.disk_model is not None and not _NOT_THE_NODES.search(seen.disk_model)
    return own and quiet and seen.cache_state == "cold"


def _from_memory(seen: StorageReading) -> str:
    """The remedy of a data set that fits in memory, where that would be enough."""
    gib, warm = seen.data_gib(), seen.warm_samples_per_s
    if gib is None or gib > seen.memory_headroom_gib / 2 or warm is None:
        return ""
    if warm.value < seen.limit_samples_per_s:
        return ""
    return (
        f"the data set ({gib:.2g} GiB) fits in memory, and from there {warm.value:,.0f} files/s "
        "come: read it once before the job starts"
    )


def _miss(cause: str, remedies: list[str], blame: Blame) -> Miss:
    return Miss(cause, "; ".join(filter(None, remedies)), blame)
