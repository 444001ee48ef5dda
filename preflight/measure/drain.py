"""Drains a loader in a thread, as an ideal GPU would: takes every batch at once, lets go of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any


class Drain:
    """Takes batches until it is told to stop. All fields may be read while it runs."""

    def __init__(self, loader: Iterable[Any], most_batches_per_s: float | None = None) -> None:
        """A loader that ends is begun again; `most_batches_per_s` spares what it loads from."""
        self.batches = 0
        self.first_batch_at: float | None = None
        self.error: BaseException | None = None
        self._loader = loader
        self._gap_s = 1 / most_batches_per_s if most_batches_per_s else 0.0
        self._stopped = threading.Event()
        # iter() in the caller's thread, the main one: only there torch can install its SIGCHLD
        # handler, which tells a worker's death at once.
        first = iter(loader)
        self.thread = threading.Thread(target=self._run, args=(first,), daemon=True)
        self.thread.start()

    def consumed(self) -> int | None:
        """None: the workers' samples are what counts."""
        return None

    def stop(self) -> None:
        """Take no further batch; does not wait for the one that may never come."""
        self._stopped.set()

    def _run(self, batches: Iterator[Any]) -> None:
        due: float | None = None
        try:
            while not self._stopped.is_set():
                before = self.batches
                for _ in batches:
                    self.batches += 1
                    now = time.monotonic()
                    if self.first_batch_at is None:
                        self.first_batch_at = due = now
                    # One that came late may be made up for, a stall may not.
                    due = max(due or 0.0, now - self._gap_s) + self._gap_s
                    if self._stopped.wait(max(0.0, due - time.monotonic())):
                        return
                if self.batches == before:
                    raise ValueError("an epoch of the loader gave no batch")
                batches = iter(self._loader)
        except BaseException as error:
            self.error = error
