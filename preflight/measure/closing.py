"""Ends the workers of a loader that is no longer needed, and never waits for one for ever.

torch ends its workers when the iterator is collected: it waits 5 s for each, and without limit for
the thread that pins memory. Workers that run on would take the CPUs from the next measurement.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

POLITE_S = 2.0
"""For the sample that each worker is at; a slower one is of no use to anybody."""
_KILLED_S = 2.0
_POLL_S = 0.02


def close(iterator: Any, polite_s: float = POLITE_S) -> bool:
    """End the workers behind iter(DataLoader): asked first, then killed. True when all are gone.

    Call it in the main thread, once nobody takes batches any more. A thread that still waits in
    next() gets an error there, or nothing.
    """
    workers = list(getattr(iterator, "_workers", ()))
    ask = getattr(iterator, "_shutdown_workers", None)
    if ask is None:
        return True  # num_workers=0
    asking = threading.Thread(target=_quietly, args=(ask,), daemon=True)
    asking.start()
    asking.join(polite_s)
    if not _gone(workers, 0.0):
        with _deaf_to_children():
            for worker in workers:
                worker.kill()
            return _gone(workers, _KILLED_S)
    return True


def _gone(workers: list[Any], within_s: float) -> bool:
    until = time.monotonic() + within_s
    while any(worker.is_alive() for worker in workers):
        if time.monotonic() >= until:
            return False  # it sits in the kernel: no signal ends it
        time.sleep(_POLL_S)
    return True


def _quietly(ask: Any) -> None:
    # What torch says of workers that were killed is no news, and there is nobody to tell.
    with contextlib.suppress(Exception):
        ask()


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
