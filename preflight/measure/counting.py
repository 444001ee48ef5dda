"""Wraps what a loader is made of, its dataset and its collate_fn, so that workers count themselves.

What is wrapped behaves as before. Importing this file imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from preflight.measure.counters import Counters, Slot
from preflight.measure.slow_line import watch_lines

SamplesIn = Callable[[Any], int]
"""How many samples something is that a dataset returned for one index, or by one next()."""


@dataclass(frozen=True)
class WorkerInit:
    """A worker_init_fn that says which process a worker is and when it was ready."""

    counters: Counters
    lines: bool = False

    def __call__(self, worker_id: int) -> None:
        """Called by torch in the worker, before its first sample."""
        slot = self.counters.slot(worker_id)
        if self.lines:
            watch_lines(slot)
        slot.start()


def worker_init(counters: Counters, *, lines: bool = False) -> WorkerInit:
    """The `worker_init_fn` for a DataLoader whose dataset is `counted`.

    With `lines` it also says which line of the job's own code the worker is most often seen in.
    """
    return WorkerInit(counters, lines)


@dataclass(frozen=True)
class CountedCollate:
    """A loader's collate_fn, timed."""

    collate: Callable[[Any], Any]
    counters: Counters

    def __call__(self, samples: Any) -> Any:
        """Called by torch in the worker, with the samples of one batch."""
        worker = get_worker_info()
        slot = self.counters.slot(worker.id if worker else 0)
        wall, cpu = time.monotonic_ns(), time.thread_time_ns()
        slot.enter_collate(wall)
        try:
            batch = self.collate(samples)
        finally:
            slot.enter_collate(0)
        slot.collated(time.monotonic_ns() - wall, time.thread_time_ns() - cpu)
        return batch


def counted(
    dataset: Any,
    counters: Counters,
    *,
    samples_in: SamplesIn | None = None,
    endless: bool = False,
) -> Dataset[Any]:
    """The dataset, of either style, with its finished samples counted.

    What it returns for one index is one sample, unless `samples_in` says that it may be a batch.
    An iterable one that is `endless` begins anew at its end.
    """
    style = CountingIterable if isinstance(dataset, IterableDataset) else CountingDataset
    return style(dataset, counters, samples_in, endless)


class _Transparent:
    """Length and attributes are the wrapped dataset's: code that meets it sees no change."""

    def __init__(
        self,
        dataset: Any,
        counters: Counters,
        samples_in: SamplesIn | None = None,
        endless: bool = False,
    ) -> None:
        self.__dict__.update(
            _preflight_dataset=dataset, _preflight_counters=counters,
            _preflight_samples_in=samples_in, _preflight_endless=endless,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._preflight_dataset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._preflight_dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # The usual way to shard an IterableDataset is to set its bounds in worker_init_fn.
        setattr(self._preflight_dataset, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self.__dict__.values())  # what __init__ was given, in its order

    def _preflight_slot(self) -> Slot:
        """Where this process counts, also in a loader without workers."""
        worker = get_worker_info()
        slot: Slot = self._preflight_counters.slot(worker.id if worker else 0)
        return slot

    def _preflight_timed(self, load: Callable[..., Any], argument: Any, samples: int | None) -> Any:
        """Call load(argument) and count what it returned; None: one sample, or a batch."""
        slot = self._preflight_slot()
        wall, cpu = time.monotonic_ns(), time.thread_time_ns()
        slot.enter_getitem(wall)
        try:
            loaded = load(argument)
        finally:
            slot.enter_getitem(0)
        wall_ns, cpu_ns = time.monotonic_ns() - wall, time.thread_time_ns() - cpu
        if samples is None:
            samples_in = self._preflight_samples_in
            samples = 1 if samples_in is None else samples_in(loaded)
        slot.finish(samples, wall_ns, cpu_ns)
        return loaded


class CountingDataset(_Transparent, Dataset[Any]):
    """A map-style dataset with its finished samples counted."""

    def __getitem__(self, index: Any) -> Any:
        # A loader without automatic batching may hand over a whole batch of indices.
        samples = len(index) if isinstance(index, list) else None
        return self._preflight_timed(self._preflight_dataset.__getitem__, index, samples)

    def __getattr__(self, name: str) -> Any:
        if name != "__getitems__":
            return super().__getattr__(name)
        # torch asks whether the dataset has it, and whether it is true.
        load = self._preflight_dataset.__getitems__
        return load and (lambda indices: self._preflight_timed(load, indices, len(indices)))


class CountingIterable(_Transparent, IterableDataset[Any]):
    """An iterable-style dataset with its finished samples counted: one for each item it yields."""

    def __iter__(self) -> Iterator[Any]:
        passes = 0
        while True:
            iterator, given = iter(self._preflight_dataset), False
            while True:
                try:
                    item = self._preflight_timed(next, iterator, None)
                except StopIteration:
                    break
                given = True
                yield item
            passes += given
            if not passes:
                self._preflight_slot().is_empty()
            if not given or not self._preflight_endless:
                return
