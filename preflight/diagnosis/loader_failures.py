"""How a measuring process dies, and what that means. Data: the first row that fits explains it.

Patterns are looked for in the exception's text and in the last lines the process printed. Each row
names the public thread it was learnt from, or says that it was seen with torch 2.13.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from preflight.diagnosis.remedies import (
    FEWER_BATCHES,
    MORE_MEMORY,
    MORE_SHM,
    TEMPORARY_FOLDER,
)
from preflight.outcome import Blame, Outcome


@dataclass(frozen=True)
class Failure:
    """One way to die. `cause` may hold {shm} or {nofile}, `remedy` {gib}: the loader's need."""

    name: str
    cause: str
    remedy: str
    blame: Blame
    outcome: Outcome = Outcome.FAIL
    patterns: tuple[str, ...] = ()
    signal: signal.Signals | None = None
    needs_oom_kill: bool = False
    """Only when the memory cgroup counted an OOM kill meanwhile."""
    gib: str = ""
    """Which need fills {gib}: "shm" or "memory"."""
    vague: bool = False
    """It says that something ended and not why: what was printed may tell more."""
    finding: str = "completed"
    """The id of what is found, behind the check's."""
    told_as: str = ""
    """What stands behind it in the text is the cause, and a next line the remedy."""
    crash: bool = False
    """The output may name the line."""


FAILURES = (
    Failure(
        name="oom_kill",
        cause="the kernel killed a process of the loader at the container's memory limit",
        remedy=MORE_MEMORY + FEWER_BATCHES,
        blame=Blame.SETUP,
        patterns=("killed by signal: Killed",),  # pytorch/pytorch#8976
        signal=signal.SIGKILL,
        needs_oom_kill=True,
        gib="memory",
    ),
    Failure(
        name="shm_full",
        cause="/dev/shm ran full while the workers handed over batches: {shm}",
        remedy=MORE_SHM,
        blame=Blame.SETUP,
        patterns=(
            "unable to allocate shared memory(shm)",  # torch since pytorch/pytorch#161910
            "unable to write to file </torch_",  # pytorch/pytorch#10396
            "killed by signal: Bus error",  # pytorch/pytorch#5040
        ),
        signal=signal.SIGBUS,
        gib="shm",
    ),
    Failure(
        name="no_temporary_directory",
        cause="no temporary directory is writable, and the workers' sockets need one",
        remedy=TEMPORARY_FOLDER,
        blame=Blame.SETUP,
        patterns=("No usable temporary directory",),  # seen with torch 2.13 on a read-only root
    ),
    Failure(
        name="open_files",
        cause="the limit on open files{nofile} was reached: each tensor in flight holds one",
        remedy="raise it: ulimit -n 65536 or docker run --ulimit nofile=65536",
        blame=Blame.SETUP,
        patterns=(
            "received 0 items of ancdata",  # pytorch/pytorch#973
            "Too many open files",  # pytorch/pytorch#165532
            "unable to open shared memory object",  # pytorch/pytorch#14768
        ),
    ),
    Failure(
        name="too_many_processes",
        cause="no further process or thread could be started",
        remedy="raise the limit: docker run --pids-limit, the kubelet's podPidsLimit, or ulimit -u",
        blame=Blame.SETUP,
        patterns=(
            "can't start new thread",
            "pthread_create failed: Resource temporarily unavailable",
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",  # fork
        ),
    ),
    Failure(
        name="address_space",
        cause="memory could not be mapped: the limit on memory or on mappings was reached",
        remedy=MORE_MEMORY + FEWER_BATCHES + "; also look at vm.max_map_count and ulimit -v",
        blame=Blame.SETUP,
        patterns=(
            "Cannot allocate memory",
            "\nMemoryError",
            "Caught MemoryError",
        ),  # pytorch/pytorch#92134
        gib="memory",
    ),
    Failure(
        name="semaphores_removed",
        cause="semaphores vanished: systemd removes a user's IPC objects at the end of a session",
        remedy="loginctl enable-linger USER, or set RemoveIPC=no, or do not use the host's IPC",
        blame=Blame.SETUP,
        patterns=("_multiprocessing.SemLock._rebuild",),  # mlcommons/storage#447
    ),
    Failure(
        name="corrupt_data",
        cause="sample after sample could not be read",
        remedy="read what is named there by hand; check what the data path holds, and sample.codec",
        blame=Blame.DATA,
        patterns=("CorruptData: ",),  # we give up after 16 in a row
        told_as="CorruptData: ",
    ),
    Failure(
        name="torch_missing",
        cause="torch cannot be imported in this image",
        remedy="run the gate in the image of the training job, or install torch 2.6 or later",
        blame=Blame.IMAGE,
        outcome=Outcome.ERROR,
        patterns=("No module named 'torch'",),
    ),
    Failure(
        name="batch_lost",
        cause="a worker could not send a batch",
        remedy="let the data set and the collate_fn return tensors, arrays and numbers: no lambda, "
        "generator, lock or open file, and nothing of a class made inside a function",
        blame=Blame.SETUP,
        outcome=Outcome.ERROR,
        patterns=("BatchLost: ",),  # pickle's words differ with the version of Python
        told_as="BatchLost: ",
    ),
    Failure(
        name="pin_thread",
        cause="torch's pinning thread ended: pinned memory could not be allocated or CUDA failed",
        remedy="try loader.pin_memory: false to tell the two apart, and look at the output kept",
        blame=Blame.UNKNOWN,
        outcome=Outcome.ERROR,
        patterns=("Pin memory thread exited unexpectedly",),  # pytorch/pytorch#47445
    ),
    Failure(
        name="no_batch",
        cause="living workers gave no batch",
        remedy="run the data set alone with num_workers=0; if its samples are slow, lower "
        "batch_size",
        blame=Blame.UNKNOWN,
        patterns=("NoBatch: ",),
        told_as="NoBatch: ",
        vague=True,
        finding="no_batch",
    ),
    Failure(
        name="loader_timed_out",
        cause="the loader gave no batch for loader.timeout_s: a worker waits for data that "
        "does not come, or is locked up",
        remedy="read the files from the node by hand; look at `dmesg` for I/O errors",
        blame=Blame.UNKNOWN,
        outcome=Outcome.ERROR,
        patterns=("LoaderSilent: ", "DataLoader timed out after"),
        told_as="LoaderSilent: ",
        vague=True,
    ),
    Failure(
        name="killed",
        cause="a process of the loader was killed from outside (SIGKILL), without an OOM kill here",
        remedy="ask who killed it: an OOM kill of the whole node, an operator, a job manager",
        blame=Blame.UNKNOWN,
        outcome=Outcome.ERROR,
        patterns=("killed by signal: Killed",),
        signal=signal.SIGKILL,
    ),
    Failure(
        name="crashed",
        cause="a process of the loader crashed in native code",
        remedy="run the data set alone with num_workers=0 and python -X faulthandler",
        blame=Blame.UNKNOWN,
        outcome=Outcome.ERROR,
        patterns=("killed by signal: Segmentation fault", "killed by signal: Aborted"),
        signal=signal.SIGSEGV,
        crash=True,
    ),
    Failure(
        name="worker_ended",
        cause="a worker of the loader ended by itself",
        remedy="look in the data set, and in what it imports, for sys.exit, os._exit and an error "
        "that the output kept names",
        blame=Blame.SETUP,
        outcome=Outcome.ERROR,
        patterns=("exited unexpectedly with exit code",),
        told_as="WorkerEnded: ",
        vague=True,
    ),
)


def explain(
    text: str, output: str, exit_signal: int | None, oom_kills: int | None
) -> Failure | None:
    """The first row that fits, or None.

    `text` is the exception, `output` the last lines printed, `exit_signal` the signal that ended
    the process, `oom_kills` how many the memory cgroup counted meanwhile.
    """
    rows = [row for row in FAILURES if oom_kills or not row.needs_oom_kill]
    if exit_signal is not None:
        for row in rows:
            if row.signal == exit_signal:
                return row
    # The exception first: what a process printed on the way may name other things, too.
    for vague in (False, True):
        for seen in (f"\n{text}", f"\n{output}"):
            for row in rows:
                if row.vague is vague and any(pattern in seen for pattern in row.patterns):
                    return row
    return None
