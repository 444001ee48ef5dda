"""shm: does /dev/shm hold the batches that the loader keeps in flight?

The need is arithmetic, measured once against torch; a bounded write of unlinked files proves that
the mount really gives what it says. It never takes more than a quarter of what is free.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from preflight.checks.contract import Check, Limits, Reading, Unit
from preflight.diagnosis.remedies import MORE_SHM, more_memory
from preflight.judge import Miss, at_least, at_most, holds
from preflight.model import Finding
from preflight.outcome import Outcome

GIB = 2**30
_ENGINE_DEFAULT_GIB = 64 / 1024  # docker, podman and containerd mount so much when nobody asks


class ShmLimits(Limits):
    """What /dev/shm has to offer."""

    min_free_gib: float = Field(ge=0, description="floor, whatever the loader needs")
    margin: float = Field(ge=1, description="the arithmetic need is multiplied by this")
    write: Literal["none", "bounded", "full"] = Field(description="how much is really written")
    max_memory_share: float = Field(gt=0, le=1, description="of the memory headroom, at most")
    max_stale_gib: float = Field(ge=0, description="more in forgotten files than this warns")


class ShmReading(Reading):
    """/dev/shm as found. None: not mounted, or not written."""

    mounted: bool
    fs_type: str | None
    size_gib: float
    free_gib: float
    need_gib: float
    memory_headroom_gib: float
    written_gib: float | None
    write_error: str | None
    stale_gib: float
    stale_files: tuple[str, ...]


def observe(unit: Unit) -> ShmReading:
    """Read the mount and write a bounded part of the need."""
    unit.ready()
    shm, limits = unit.facts.shm, unit.limits
    reading = ShmReading(
        mounted=shm is not None and not shm.read_only,
        fs_type=shm.fs_type if shm else None,
        size_gib=shm.size_gib if shm else 0.0,
        free_gib=shm.free_gib if shm else 0.0,
        need_gib=unit.job.shm_bytes() * limits.margin / GIB,
        memory_headroom_gib=unit.facts.memory.headroom_gib,
        written_gib=None,
        write_error=None,
        stale_gib=shm.stale_gib if shm else 0.0,
        stale_files=shm.stale_files if shm else (),
    )
    to_write = bytes_to_write(reading, limits)
    if not reading.mounted or to_write == 0:
        return reading
    from preflight.measure.shm_write import write_and_read_back

    unit.progress(f"writing {to_write / GIB:.2f} GiB to /dev/shm")
    written, error = write_and_read_back(unit.machine.host_path("/dev/shm"), to_write)
    return reading.model_copy(update={"written_gib": written / GIB, "write_error": error})


def bytes_to_write(seen: ShmReading, limits: ShmLimits) -> int:
    """At most 1 GiB and a quarter of what is free, leaving 1 GiB where there is so much."""
    if limits.write == "none":
        return 0
    wanted = min(seen.need_gib, limits.max_memory_share * seen.memory_headroom_gib)
    if limits.write == "bounded":
        leave = 1.0 if seen.free_gib > 1.0 else 0.0
        wanted = min(wanted, 1.0, seen.free_gib / 4, seen.free_gib - leave)
    return max(0, int(wanted * GIB))


def judge(readings: Sequence[ShmReading], limits: ShmLimits) -> list[Finding]:
    """Hold free space, memory behind it and the write against the need."""
    seen, where = readings[0], "/dev/shm"
    gib = math.ceil(max(seen.need_gib, limits.min_free_gib))
    more_shm = MORE_SHM.format(gib=gib)
    missing = Miss(
        "/dev/shm is not mounted, or read-only: no worker can hand over a batch", more_shm
    )
    findings = [holds("shm.mounted", seen.mounted, seen.fs_type, missing, subject=where)]
    if not seen.mounted:
        return findings
    free, need = round(seen.free_gib, 4), round(seen.need_gib, 4)
    cause = (
        f"{where} has {free:g} GiB free of {seen.size_gib:.4g}; the batches in flight take {need:g}"
    )
    if math.isclose(seen.size_gib, _ENGINE_DEFAULT_GIB, rel_tol=0.02):
        cause += ". 64 MiB is the container engine's default: nobody set a size"
    small = Miss(cause, more_shm)
    findings.append(at_least("shm.need", free, need, "GiB", small, subject=where))
    floor = Miss(f"{where} has {free:g} GiB free of {seen.size_gib:.4g}", more_shm)
    source = limits.source("min_free_gib")
    findings.append(
        at_least("shm.floor", free, limits.min_free_gib, "GiB", floor, subject=where, source=source)
    )
    headroom = round(limits.max_memory_share * seen.memory_headroom_gib, 4)
    cause = (
        f"pages in {where} count against the memory limit, which leaves "
        f"{seen.memory_headroom_gib:g} GiB, {limits.max_memory_share:.0%} of it for them: beyond "
        "that the kernel kills the job instead of reporting a full mount"
    )
    behind = Miss(cause, more_memory((need - headroom) / limits.max_memory_share))
    findings.append(at_least("shm.memory_behind", headroom, need, "GiB", behind, subject=where))
    if seen.written_gib is not None:
        cause = (
            f"{seen.write_error} after {seen.written_gib:.3g} GiB, though {free:g} GiB look free"
        )
        too_large = seen.write_error == os.strerror(errno.EFBIG)
        failed = Miss(cause, "ulimit -f unlimited" if too_large else more_shm)
        written = round(seen.written_gib, 4)
        findings.append(
            holds("shm.write_back", seen.write_error is None, written, failed, "GiB", where)
        )
    cause = "files that an earlier job left behind: " + ", ".join(seen.stale_files)
    stale = Miss(cause, "remove them once no process uses them (fuser)", outcome=Outcome.WARN)
    findings.append(
        at_most(
            "shm.stale_files", round(seen.stale_gib, 4), limits.max_stale_gib, "GiB", stale,
            subject=where,
        )
    )  # fmt: skip
    return findings


CHECK = Check(
    id="shm",
    title="Shared memory",
    about=(
        "DataLoader workers hand batches over in /dev/shm. At the peak a rank keeps W x P + 2 of "
        "them (W workers, prefetch factor P). The check multiplies that by the batch's bytes, the "
        "ranks and a margin, compares it with what is free and with the memory behind the mount, "
        "and writes a bounded part of it to an unlinked file."
    ),
    limits=ShmLimits,
    reading=ShmReading,
    findings={
        "mounted": "mount a tmpfs at /dev/shm (every container engine does unless told not to)",
        "need": "raise --shm-size, Compose's shm_size or the emptyDir's sizeLimit",
        "floor": "raise --shm-size, Compose's shm_size or the emptyDir's sizeLimit",
        "memory_behind": "raise the container's memory limit: /dev/shm is charged to it",
        "write_back": "find what limits the mount: a quota, a full tmpfs, the memory limit",
        "stale_files": "remove files that earlier jobs left in /dev/shm",
    },
    observe=observe,
    judge=judge,
)
