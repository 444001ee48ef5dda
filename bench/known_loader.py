"""Datasets whose rate is known, and a recorder of the loader that runs them.

A sample costs a fixed sleep (the loader waits, the CPUs are idle) or fixed CPU seconds of its
thread (the loader fills the CPUs, whatever their clock does).
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from bench.replay import Moment, Setup
from preflight.machine.load import LoadMeter
from preflight.machine.root import host
from preflight.measure.counters import Counters
from preflight.measure.counting import counted, worker_init
from preflight.measure.dataset import EndlessShuffle
from preflight.measure.drain import Drain

_LENGTH = 1024
_START_LIMIT_S = 30.0
_SETTLE_S = 2.0
_END_LIMIT_S = 15.0


class Sleeping(Dataset[torch.Tensor]):
    """Waits so many seconds for each sample, as for a slow store."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.zeros(1)


class Busy(Dataset[torch.Tensor]):
    """Burns so many CPU seconds of its thread for each sample, as decoding does."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        return torch.zeros(1)


class Recorder:
    """A running loader that is looked at as the check does, with the check's own parts."""

    def __init__(self, dataset: Dataset[Any], setup: Setup) -> None:
        job, self._block_s = setup.job, setup.job.stats.block_s
        self._counters = Counters.create(job.num_workers)
        loader: DataLoader[Any] = DataLoader(
            counted(dataset, self._counters),
            batch_size=job.loader.batch_size,
            sampler=EndlessShuffle(_LENGTH, job.seed),
            num_workers=job.num_workers,
            prefetch_factor=job.loader.prefetch_factor,
            worker_init_fn=worker_init(self._counters),
        )
        self._drain = Drain(iter(loader))
        machine = host()
        self._meter = LoadMeter(machine, machine.affinity(), self._pids)

    def settle(self) -> None:
        """Wait until all workers work. Raises RuntimeError when they do not."""
        deadline = time.monotonic() + _START_LIMIT_S
        while not all(slot.finished for slot in self._counters.read()):
            if self._drain.error is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the loader did not start: {self._drain.error}")
            time.sleep(0.05)
        time.sleep(_SETTLE_S)

    def record(self, seconds: float) -> list[Moment]:
        """Looks at every block's end for so long. Raises what a worker raised."""
        moments = [self._look()]
        while moments[-1].load.at_s - moments[0].load.at_s < seconds:
            time.sleep(self._block_s)
            if self._drain.error is not None:
                raise self._drain.error
            moments.append(self._look())
        return moments

    def close(self) -> None:
        """End the workers: they go with the iterator, once nobody takes from it."""
        workers = [f"/proc/{slot.pid}" for slot in self._counters.read()]
        self._drain.stop()
        del self._drain
        deadline = time.monotonic() + _END_LIMIT_S
        while any(map(os.path.exists, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _look(self) -> Moment:
        finished = sum(slot.finished for slot in self._counters.read())
        return Moment(finished, self._drain.batches, self._meter.read(time.monotonic()))

    def _pids(self) -> list[int]:
        return [os.getpid(), *(slot.pid for slot in self._counters.read() if slot.pid is not None)]
