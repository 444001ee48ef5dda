"""The shm check's verdict: what was seen in, findings out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from preflight.checks.shm.reading import ShmLimits, ShmReading
from preflight.diagnosis.remedies import MORE_SHM, TEMPORARY_FOLDER, more_memory
from preflight.judge import Miss, at_least, at_most, holds
from preflight.model import Finding
from preflight.outcome import Outcome

_ENGINE_DEFAULT_GIB = 64 / 1024  # docker, podman and containerd mount so much when nobody asks
_TOO_LARGE = "File too large"  # EFBIG: a limit on the size of files, not of the mount


def judge(readings: Sequence[ShmReading], limits: ShmLimits) -> list[Finding]:
    """Hold free space, memory behind it and the write against the need."""
    seen, where = readings[0], "/dev/shm"
    gib = math.ceil(max(seen.need_gib, limits.min_free_gib))
    more_shm = MORE_SHM.format(gib=gib)
    missing = Miss(
        "/dev/shm is not mounted, or read-only: no worker can hand over a batch", more_shm
    )
    findings = [
        _temporary_folder(seen),
        holds("shm.mounted", seen.mounted, seen.fs_type, missing, subject=where),
    ]
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
    if seen.container is not None and seen.memory_limit_gib is not None:
        findings.append(_within_memory(seen, seen.memory_limit_gib))
    if seen.written_gib is not None:
        cause = (
            f"{seen.write_error} after {seen.written_gib:.3g} GiB, though {free:g} GiB look free"
        )
        too_large = seen.write_error == _TOO_LARGE
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


def _temporary_folder(seen: ShmReading) -> Finding:
    cause = (
        "no temporary folder is writable (TMPDIR, /tmp, /var/tmp, the working folder): workers "
        "hand over what lies in /dev/shm by sockets in one, and without it the DataLoader waits "
        "for ever and says nothing"
    )
    miss = Miss(cause, TEMPORARY_FOLDER)
    found = seen.temporary_folder
    return holds("shm.temporary_folder", found is not None, found, miss)


def _within_memory(seen: ShmReading, limit_gib: float) -> Finding:
    """Where the planned loader fits, so that it is no more than a trap for what comes later."""
    cause = (
        f"/dev/shm is {seen.size_gib:.4g} GiB large, and what is written to it counts against the "
        f"memory limit of {limit_gib:.4g} GiB: a job that fills it is killed by the kernel (exit "
        "137) before the mount is full, without a word of /dev/shm"
    )
    remedy = (
        f"keep the emptyDir's sizeLimit (docker run --shm-size) under {limit_gib:.4g} GiB, or "
        "raise the memory limit above it by what the processes need"
    )
    miss = Miss(cause, remedy, outcome=Outcome.WARN)
    return at_most(
        "shm.within_memory", round(seen.size_gib, 4), round(limit_gib, 4), "GiB", miss,
        subject="/dev/shm",
    )  # fmt: skip
