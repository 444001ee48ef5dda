"""Ends the workers of a loader that is no longer needed, and never waits for one for ever.

torch ends them when its iterator is collected: it waits 5 s for each, and without limit for the
thread that pins memory. Workers that run on would take the CPUs from the next measurement.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable, Iterator

from torch import multiprocessing

_TERMINATED_S = 1.0
_KILLED_S = 2.0
_POLL_S = 0.02


def worker_pids() -> set[int]:
    """Processes that this one has started by multiprocessing, a data set's own helpers included."""
    return {child.pid for child in multiprocessing.active_children() if child.pid is not None}


def end_workers(pids: Iterable[int]) -> bool:
    """End a loader's workers, within three seconds. True when all are gone.

    Whoever takes its batches should have been told to stop; a thread that waits in next() gets an
    error there, and with that lets go of the loader. Call it in the main thread.
    """
    wanted = set(pids)
    workers = [child for child in multiprocessing.active_children() if child.pid in wanted]
    with _deaf_to_children():
        for end, within_s in (("terminate", _TERMINATED_S), ("kill", _KILLED_S)):
            for worker in workers:
                getattr(worker, end)()
            until = time.monotonic() + within_s
            while any(worker.is_alive() for worker in workers) and time.monotonic() < until:
                time.sleep(_POLL_S)
        # One that sits in the kernel is not ended by any signal.
        return not any(worker.is_alive() for worker in workers)


@contextlib.contextmanager
def _deaf_to_children() -> Iterator[None]:
    """Without torch's handler, which raises in the main thread when a worker is killed."""
    try:
        heard = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    except ValueError:  # not the main thread, where the handler would raise
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, heard)
