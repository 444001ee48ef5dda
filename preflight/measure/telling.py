"""What a loader's worker does before its first sample so that its trouble can be told.

A batch that its queue could not send is noted, since torch would wait for it for ever. A signal
makes it note where it stands, also while it holds Python's lock. A crash prints the line.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.queues import Queue
from typing import Any

from preflight.measure.notes import Notes

ASK = int(signal.SIGRTMAX) - 7  # a real-time signal: nobody else's
ANSWERS, LOST, ITEM = "worker answers", "batch lost", "item bytes"

_notes: int | None = None
"""The descriptor of this process's notes, when it is a worker."""


@dataclass(frozen=True)
class Telling:
    """A worker_init_fn that gets a worker ready to tell, and then does what another one does."""

    notes: Notes
    init: Callable[[int], None]

    def __call__(self, worker_id: int) -> None:
        """Called by torch in the worker."""
        global _notes
        faulthandler.unregister(signal.SIGTERM)  # the main process's, which a fork inherits
        with suppress(OSError, ValueError, AttributeError):  # no standard error that is a file
            # Anew: a fork is told that it is enabled, while the handlers are torch's by now.
            faulthandler.disable()
            faulthandler.enable(sys.stderr, all_threads=False)
        _notes = self.notes.open()
        if _notes is not None:
            faulthandler.register(ASK, _notes, all_threads=False, chain=False)
            _note_lost_batches()
            note(ANSWERS, f"{worker_id} {os.getpid()}")
        self.init(worker_id)


def say_where_it_ends() -> None:
    """In the main process: whoever ends it, or whatever crashes it, its line is printed."""
    with suppress(OSError, ValueError, AttributeError):
        faulthandler.enable(sys.stderr, all_threads=False)
        faulthandler.register(signal.SIGTERM, sys.stderr, all_threads=False, chain=True)


def note(what: str, text: str) -> None:
    """Leave a line, in a worker that may; in any other process nothing happens."""
    if _notes is not None:
        with suppress(OSError):
            os.write(_notes, f"{what}: {text}\n".encode("utf-8", "replace"))


def item_bytes(item: Any) -> int:
    """Bytes of the arrays in what a data set returned: what they take of /dev/shm."""
    if isinstance(size := getattr(item, "nbytes", None), int):
        return size
    inner = item.values() if isinstance(item, dict) else item
    return sum(map(item_bytes, inner)) if isinstance(inner, (list, tuple, type({}.values()))) else 0


def _note_lost_batches() -> None:
    # The queue's thread prints an error and goes on; the hook is the only one who hears of it.
    usual = getattr(Queue, "_on_queue_feeder_error", None)
    if usual is None:
        return

    def hear(error: BaseException, sent: Any) -> None:
        # torch sends (number of the batch, batch); a queue of the job's own sends what it likes.
        if isinstance(sent, tuple) and len(sent) == 2 and isinstance(sent[0], int):
            first = str(error).partition("\n")[0]
            note(ITEM, f"batch {item_bytes(sent[1])}")
            note(LOST, f"{type(error).__name__}: {first}")
        usual(error, sent)

    Queue._on_queue_feeder_error = staticmethod(hear)  # type: ignore[attr-defined]
