"""How fast ready samples come through the job's own loader: collate, /dev/shm, pinning, hand-over.

The loader is the job's in all but its data: each worker returns the same sample, made before, so
that nothing is left but the way from there to the training process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from preflight.facts import Load
from preflight.job import Stats
from preflight.machine.load import LoadMeter
from preflight.machine.root import Root
from preflight.measure.blocks import BlockMaker
from preflight.measure.closing import end_workers, worker_pids
from preflight.measure.dataset import EndlessShuffle
from preflight.measure.stage_rates import cut_arrivals, rate_of_blocks
from preflight.measure.stage_timing import StageFailed
from preflight.measure.stages import Share, cpu_note, one
from preflight.measure.stopping import FEWEST_BLOCKS
from preflight.model import Stage

START_S = 15.0
"""Until the loader is warm: spawned workers import torch, which takes seconds."""
_LONGEST = 3  # times the stage's time: large batches come slowly, and some are needed
_POLL_S = 0.01
_LAST_BATCH_S = 0.5
_INDICES = 4096


class Ready(Dataset[Any]):
    """The same sample whatever is asked for. Pickled into workers that are spawned."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def __getitem__(self, index: Any) -> Any:
        return self._item


def transport(
    loader: DataLoader[Any],
    item: Any,
    share: Share,
    stats: Stats,
    machine: Root,
    samples_in: Callable[[Any], int] = one,
) -> Stage:
    """Measure a loader with the settings of `loader`, whose own workers have ended, for `item`.

    This rank alone measures. Its rate while all ranks do the same is the smaller of what was seen
    and of what the CPUs allow: effective CPUs / (ranks x CPU seconds of a sample). What others took
    meanwhile is added again, as x (1 - f). Memory bandwidth that ranks share is not in it. Call it
    in the main thread.

    Args:
        loader: settings.
        item: what its data set returns.
        share: the CPUs.
        stats: for how long.
        machine: for who used the CPUs meanwhile.
        samples_in: samples in what the data set returns, where torch makes no batches of it.

    Raises:
        StageFailed: no batch in START_S, or too few to tell.
        Exception: what the loader or a worker raised.
    """
    batch, before = _samples_in_a_batch(loader, item, samples_in), worker_pids()
    batches = iter(_like(loader, Ready(item), batch))
    workers = worker_pids() - before
    meter = LoadMeter(machine, machine.affinity(), lambda: {os.getpid(), *workers})
    consumer = _Consumer(batches)
    try:
        consumer.wait(2 * loader.num_workers + 1, 0.0, START_S, stats.stage_s)
        start, first = meter.read(time.monotonic()), len(consumer.arrivals_s) - 1
        consumer.wait(first + 1 + FEWEST_BLOCKS, stats.stage_s, _LONGEST * stats.stage_s, 0.0)
        end, arrivals_s = meter.read(time.monotonic()), consumer.arrivals_s[first:]
    finally:
        consumer.stop()
        end_workers(workers)
    xs = cut_arrivals(arrivals_s, batch, loader.num_workers)
    if not xs:
        waited = _LONGEST * stats.stage_s
        raise StageFailed(f"no two batches of ready samples in {waited:g} s")
    cpu_s = None
    if start.own_cpu_s is not None and end.own_cpu_s is not None:
        cpu_s = (end.own_cpu_s - start.own_cpu_s) / (batch * (len(arrivals_s) - 1))
    least_s = 0.0 if cpu_s is None else cpu_s * share.ranks / share.effective_cpus
    ours = 1 - _disturbance(start, end, share, stats)
    return Stage(
        name="transport",
        samples_per_s=rate_of_blocks([max(x * ours, least_s) for x in xs], stats.alpha_pass),
        cpu_ms_per_sample=None if cpu_s is None else round(1e3 * cpu_s, 4),
        note=None if cpu_s is None else cpu_note(cpu_s),
    )


def _disturbance(start: Load, end: Load, share: Share, stats: Stats) -> float:
    """The share that others took, 0 where that is hidden. Of it all: a block is too short."""
    maker = BlockMaker(
        cpus=share.effective_cpus, block_s=stats.block_s, cfs_period_s=None, workers=1,
        main_pid=os.getpid(),
    )  # fmt: skip
    return maker.disturbance(start, end) or 0.0


def _like(loader: DataLoader[Any], dataset: Dataset[Any], batch: int) -> DataLoader[Any]:
    """The loader's own settings, without its worker_init_fn, which may count on its data set."""
    whole_batches = loader.batch_size is None and loader.batch_sampler is None
    return DataLoader(
        dataset,
        batch_size=None if whole_batches else batch,
        sampler=EndlessShuffle(_INDICES, 0),
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        in_order=loader.in_order,
        timeout=loader.timeout,
        multiprocessing_context=loader.multiprocessing_context,
        drop_last=not whole_batches,
    )


def _samples_in_a_batch(
    loader: DataLoader[Any], item: Any, samples_in: Callable[[Any], int]
) -> int:
    if loader.batch_size is not None:
        return loader.batch_size
    if loader.batch_sampler is None:
        return samples_in(item)
    return len(next(iter(loader.batch_sampler)))


class _Consumer:
    """Takes every batch at once, in a thread of its own, and notes when it came."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.arrivals_s: list[float] = []
        self._batches = batches
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, arrivals: int, least_s: float, most_s: float, after_first_s: float) -> None:
        """Until so many have arrived, but for `least_s`, and no longer than `most_s`.

        `after_first_s` ends it earlier: so long after the first batch, if that has come.

        Raises:
            StageFailed: nothing has ever arrived.
            Exception: what the loader raised.
        """
        began = time.monotonic()
        while True:
            time.sleep(_POLL_S)
            if self._error is not None:
                raise self._error
            passed_s = time.monotonic() - began
            if len(self.arrivals_s) >= arrivals and passed_s >= least_s:
                return
            warm = bool(self.arrivals_s) and after_first_s > 0
            if warm and time.monotonic() - self.arrivals_s[0] >= after_first_s:
                return
            if passed_s >= most_s:
                break
        if not self.arrivals_s:
            raise StageFailed(f"no batch of ready samples in {most_s:g} s")

    def stop(self) -> None:
        self._stopped = True
        self._thread.join(_LAST_BATCH_S)

    def _run(self) -> None:
        try:
            for _ in self._batches:
                if self._stopped:
                    return
                self.arrivals_s.append(time.monotonic())
        except BaseException as error:
            self._error = error
