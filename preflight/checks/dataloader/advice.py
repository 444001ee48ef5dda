"""The remedies of the table of causes that say what to do in words. Pure."""

from __future__ import annotations

import math

from preflight.checks.dataloader import more, signs
from preflight.checks.dataloader.case import Case


def more_cpus_or_less_work(case: Case) -> str:
    """The work of one line of the job's own, where one was named."""
    evidence = case.seen.evidence
    cheaper = "; or make that line cheaper" if evidence and evidence.slow_line else ""
    return more.cpus(case) + cheaper


def fewer_threads(case: Case) -> str:
    """One per worker."""
    return (
        "let each worker use one thread: OMP_NUM_THREADS=1, MKL_NUM_THREADS=1, "
        "OPENBLAS_NUM_THREADS=1 in the environment, cv2.setNumThreads(0) in worker_init_fn; "
        f"if that is not enough, {more.cpus(case)}"
    )


def smaller(case: Case) -> str:
    """Fewer bytes to hand over, by the shortest way."""
    if signs.sends(case):
        return (
            "let collate return tensors: they are handed over in /dev/shm, while arrays and lists "
            "of objects are copied through a pipe"
        )
    full = case.own >= more.FULL or case.never_waits >= more.FULL
    return (
        "hand over fewer bytes: crop in the data set, return uint8 and turn it into floats on the "
        "GPU" + (f"; or {more.cpus(case)}" if full else "")
    )


def whole_batches(case: Case) -> str:
    """Fewer items for the queues."""
    return (
        "let the data set return whole batches (batch_size=None with a batch_sampler, or "
        "__getitems__), or raise loader.batch_size"
    )


def relieve_main(case: Case) -> str:
    """What runs in the process that takes the batches."""
    if case.share("main_cpu_share") >= more.FULL / 2:
        return (
            "relieve the main process: larger batches, tensors in place of lists of objects, a "
            "sampler that is quick"
        )
    return (
        "let batches overtake a slow one (loader.in_order=false) or raise loader.prefetch_factor; "
        "look for single samples that take long, and for a slow sampler"
    )


def less_to_pin(case: Case) -> str:
    """The pin thread is one thread."""
    return (
        "hand over fewer bytes (uint8 in place of float32), or set loader.pin_memory=false and see "
        "whether the copies to the GPU are then fast enough"
    )


def unlock(case: Case) -> str:
    """More workers only wait longer."""
    return (
        "take the lock out of the data set's __getitem__ (a file handle or client for each worker, "
        "opened in worker_init_fn), or hold it for less"
        + ("; more workers only wait longer" if signs.does_not(case) else "")
    )


def faster_disk(case: Case) -> str:
    """Or none at all."""
    return (
        f"{_cached(case)}lift what limits its reads (io.max, docker's --device-read-bps, the "
        "IOPS of a volume), keep the data on a faster disk, or store smaller samples"
    )


def nearer(case: Case) -> str:
    """More workers where reads only wait, else other storage."""
    copy = (
        "copy the data to a local disk before the job, or look at the file server and the network"
    )
    if signs.scales(case):
        return f"{more.hide(case)}; or {copy}"
    return f"{_cached(case)}{copy}"


def faster_server(case: Case) -> str:
    """More workers do not help."""
    return (
        "look at the server and the network to it: its threads, its bandwidth, a limit on "
        "requests; or copy the data to a local disk before the job"
    )


def keep_off(case: Case) -> str:
    """Neighbours."""
    return "repeat on a quiet node, or give the job its own CPUs"


def heavier(case: Case) -> str:
    """Our share beside neighbours."""
    return (
        "give the container its share: docker run --cpu-shares=1024 or more, Kubernetes: "
        f"resources.requests.cpu of {math.ceil(case.cpus)}, or CPUs of its own (cpuset)"
    )


def own_host(case: Case) -> str:
    """A hypervisor's neighbours."""
    return "move the machine to a host that is less loaded, or rent one with CPUs of its own"


def compare_ranks(case: Case) -> str:
    """What differs."""
    return (
        f"look at what differs for rank {case.seen.rank}: its part of the data, the CPUs and the "
        "NUMA node it is bound to"
    )


def look_closer(case: Case) -> str:
    """No cause, no arithmetic."""
    return "look at what they wait for: storage, a lock in the data set, a file server"


def _cached(case: Case) -> str:
    cached = case.seen.what_if.cached_samples_per_s if case.seen.what_if else None
    if cached is None or cached < case.seen.limit_samples_per_s:
        return ""
    return f"read the data into memory before the job, which gives {cached:,.0f}/s; or "
