"""Builds torch's DataLoader with the job's settings, and drains it in a thread.

The thread does what an ideal GPU would: it takes every batch at once and lets go of it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from preflight.data.source import Source
from preflight.job import Job
from preflight.measure.counters import Counters, counted, worker_init
from preflight.measure.dataset import EndlessShuffle, SampleDataset


def build_loader(job: Job, source: Source, counters: Counters, pin_memory: bool) -> DataLoader[Any]:
    """The job's DataLoader over `source`, endless, with its workers counted."""
    loader = job.loader
    # torch warns of more workers than the affinity mask has CPUs; the limits check says it better,
    # with the quota, and the warning would stand in the output kept of a failure.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    context = loader.multiprocessing_context
    return DataLoader(
        counted(SampleDataset(source, job.sample, job.seed, counters), counters),
        batch_size=loader.batch_size,
        sampler=EndlessShuffle(len(source), job.seed),
        num_workers=job.num_workers,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        pin_memory=pin_memory,
        in_order=loader.in_order,
        timeout=loader.timeout_s,
        multiprocessing_context=None if context == "default" else context,
        worker_init_fn=worker_init(counters),
        drop_last=True,
    )


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
