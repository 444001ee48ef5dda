"""Remedies that more than one check or failure gives."""

from __future__ import annotations

import math

MORE_SHM = (
    "give /dev/shm at least {gib} GiB: docker run --shm-size={gib}g; Compose: shm_size: {gib}gb; "
    "Kubernetes: an emptyDir with medium: Memory and sizeLimit: {gib}Gi mounted at /dev/shm; "
    "or use fewer workers, a smaller batch or a smaller prefetch_factor"
)
MORE_MEMORY = (
    "raise the container's memory limit by at least {gib} GiB (docker run --memory; Kubernetes: "
    "resources.limits.memory)"
)
FEWER_BATCHES = ", or use fewer workers or a smaller batch"

TEMPORARY_FOLDER = (
    "mount a tmpfs at /tmp (docker run --tmpfs /tmp; Compose: tmpfs: /tmp; Kubernetes: an emptyDir "
    "at /tmp), or point TMPDIR at a writable folder"
)


def more_memory(missing_gib: float, *, or_else: str = FEWER_BATCHES) -> str:
    """MORE_MEMORY with a number that is enough: rounded up to a tenth of a GiB."""
    more = MORE_MEMORY.format(gib=f"{max(1, math.ceil(10 * missing_gib)) / 10:.1f}")
    return more + or_else
