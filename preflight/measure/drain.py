"""Builds torch's DataLoader with the job's settings, and drains it in a thread.

The thread does what an ideal GPU would: it takes every batch at once and lets go of it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
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

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = 0
        self.first_batch_at: float | None = None
        self.error: BaseException | None = None
        self._batches = batches
        self._stopped = False
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Take no further batch; does not wait for the one that may never come."""
        self._stopped = True

    def _run(self) -> None:
        try:
            for _ in self._batches:
                if self._stopped:
                    return
                self.batches += 1
                if self.first_batch_at is None:
                    self.first_batch_at = time.monotonic()
        except BaseException as error:
            self.error = error
