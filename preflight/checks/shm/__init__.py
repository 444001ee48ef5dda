"""shm: does /dev/shm hold the batches that the loader keeps in flight, and can they be handed over?

The need is arithmetic, measured once against torch; a bounded write of unlinked files proves that
the mount really gives what it says. It never takes more than a quarter of what is free.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from preflight.checks.contract import Check, Unit
from preflight.checks.shm.judge import judge
from preflight.checks.shm.reading import ShmLimits, ShmReading
from preflight.scratch import Scratch

GIB = 2**30


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
        memory_limit_gib=unit.facts.memory.limit_gib,
        container=unit.facts.system.container,
        written_gib=None,
        write_error=None,
        stale_gib=shm.stale_gib if shm else 0.0,
        stale_files=shm.stale_files if shm else (),
        temporary_folder=temporary_folder(unit.scratch),
    )
    to_write = bytes_to_write(reading, limits)
    if not reading.mounted or to_write == 0:
        return reading
    from preflight.measure.shm_write import write_and_read_back

    unit.progress(f"writing {to_write / GIB:.2f} GiB to /dev/shm")
    written, error = write_and_read_back(unit.machine.host_path("/dev/shm"), to_write)
    return reading.model_copy(update={"written_gib": written / GIB, "write_error": error})


def temporary_folder(scratch: Scratch) -> str | None:
    """Where the loader's sockets would go, tried by writing a file; None where nothing is writable.

    Asked as multiprocessing does. This process may have its own folder within it as TMPDIR.
    """
    try:
        found = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return None
    return str(found.parent if found.name == scratch.name else found)


def bytes_to_write(seen: ShmReading, limits: ShmLimits) -> int:
    """At most 1 GiB and a quarter of what is free, leaving 1 GiB where there is so much."""
    if limits.write == "none":
        return 0
    wanted = min(seen.need_gib, limits.max_memory_share * seen.memory_headroom_gib)
    if limits.write == "bounded":
        leave = 1.0 if seen.free_gib > 1.0 else 0.0
        wanted = min(wanted, 1.0, seen.free_gib / 4, seen.free_gib - leave)
    return max(0, int(wanted * GIB))


CHECK = Check(
    id="shm",
    title="Shared memory",
    about=(
        "DataLoader workers hand batches over in /dev/shm. At the peak a rank keeps W x P + 2 of "
        "them (W workers, prefetch factor P). The check multiplies that by the batch's bytes, the "
        "ranks and a margin, compares it with what is free and with the memory behind the mount, "
        "and writes a bounded part of it to an unlinked file. Workers pass the batches on by "
        "sockets in a temporary folder, so one has to be writable."
    ),
    limits=ShmLimits,
    reading=ShmReading,
    findings={
        "temporary_folder": "mount a tmpfs or an emptyDir at /tmp, or point TMPDIR elsewhere",
        "mounted": "mount a tmpfs at /dev/shm (every container engine does unless told not to)",
        "need": "raise --shm-size, Compose's shm_size or the emptyDir's sizeLimit",
        "floor": "raise --shm-size, Compose's shm_size or the emptyDir's sizeLimit",
        "memory_behind": "raise the container's memory limit: /dev/shm is charged to it",
        "within_memory": "keep the size of /dev/shm under the container's memory limit",
        "write_back": "find what limits the mount: a quota, a full tmpfs, the memory limit",
        "stale_files": "remove files that earlier jobs left in /dev/shm",
    },
    observe=observe,
    judge=judge,
)
