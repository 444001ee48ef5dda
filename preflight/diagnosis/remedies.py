"""Remedies that more than one check or failure gives. Text only; callers fill in the numbers."""

MORE_SHM = (
    "give /dev/shm at least {gib} GiB: docker run --shm-size={gib}g; Compose: shm_size: {gib}gb; "
    "Kubernetes: an emptyDir with medium: Memory and sizeLimit: {gib}Gi mounted at /dev/shm; "
    "or use fewer workers, a smaller batch or a smaller prefetch_factor"
)
MORE_MEMORY = (
    "raise the container's memory limit by at least {gib} GiB (docker run --memory; Kubernetes: "
    "resources.limits.memory), or use fewer workers or a smaller batch"
)
