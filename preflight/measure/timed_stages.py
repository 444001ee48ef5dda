"""Stages that one thread of this process does by itself: fetching, decoding, a user's data set.

The thread is left behind when it hangs. A rank's rate follows from the CPU time of a sample and,
where samples wait, from its workers. Nothing here judges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, IterableDataset

from preflight.data.generated import Generated
from preflight.data.source import Source
from preflight.job import Sample, Stats
from preflight.machine.root import Root
from preflight.measure.dataset import EndlessShuffle, SampleDataset
from preflight.measure.model_rate import Costs, seconds_per_sample
from preflight.measure.stage_rates import rate_of_blocks
from preflight.measure.stage_timing import Block, StageFailed, timed, within
from preflight.measure.stages import Share, cpu_note, one
from preflight.model import Stage

_KEPT_SAMPLES = 32
_KEPT_BYTES = 64 << 20


def fetch_generated(source: Source, share: Share, stats: Stats) -> Stage:
    """Fetching files that this run has written itself, and that so lie in the page cache.

    Nothing but the CPUs bounds it: the rate is that of one thread's CPU time.

    Raises:
        StageFailed: the samples are in memory, so that nothing is fetched.
    """
    if isinstance(source, Generated):
        raise StageFailed("the generated samples lie in memory: nothing is fetched")
    indices = iter(EndlessShuffle(len(source), 0))

    def load() -> int:
        return one(source.fetch(next(indices)))

    spent = within(stats, lambda: timed(load, stats, time.thread_time))
    return _cpu_stage("fetch", spent, share, stats, note="page cache")


def decode(source: Source, sample: Sample, seed: int, share: Share, stats: Stats) -> Stage:
    """Decode and transform of bytes that are in memory, as the loader's workers do it.

    The rate is per-CPU rate x CPUs of this rank, as far as its workers can use them; time that
    others took from us does not count.

    Raises:
        StageFailed: no sample could be read, or it took far too long.
        Exception: what the storage or the decoder raised.
    """

    def work() -> list[Block]:
        dataset = SampleDataset(_kept(source, seed, stats.stage_s), sample, seed)
        indices = iter(EndlessShuffle(len(dataset), seed))
        # Each sample once before: for the first corrupt one Pillow imports all of its readers.
        return timed(
            lambda: one(dataset[next(indices)]), stats, time.thread_time, warm_up=len(dataset)
        )

    return _cpu_stage("decode", within(stats, work), share, stats)


def own_dataset(
    loader: DataLoader[Any],
    share: Share,
    stats: Stats,
    machine: Root,
    samples_in: Callable[[Any], int] = one,
) -> Stage:
    """A user's data set, whose fetch and decode cannot be told apart: named decode.

    It is asked for what the loader's sampler gives, in one thread. Its samples may wait, so that
    more workers than CPUs help: 1 / max(CPU / CPUs of this rank, (wait + CPU) / workers). CPU time
    is that of the whole process, since a data set may have threads of its own.

    Args:
        loader: whose data set it is; its own workers have ended.
        share: the CPUs.
        stats: for how long.
        machine: for the time without a CPU.
        samples_in: samples in what the data set returns, where torch makes no batches of it.

    Raises:
        StageFailed: it gives nothing, or took far too long.
        Exception: what the data set raised.
    """

    def work() -> list[Block]:
        # As in a worker; else the time of one sample would be that of all CPUs.
        torch.set_num_threads(1)
        return timed(_loads(loader, samples_in), stats, time.process_time, machine)

    spent = within(stats, work)
    how = "iterator" if isinstance(loader.dataset, IterableDataset) else "__getitem__"
    xs = [seconds_per_sample(block.costs(), share.cpus, share.workers) for block in spent]
    return Stage(
        name="decode",
        samples_per_s=rate_of_blocks(xs, stats.alpha_pass),
        cpu_ms_per_sample=round(1e3 * _mean_cpu_s(spent), 4),
        note=f"the data set's own {how}",
    )


def first_item(loader: DataLoader[Any], stats: Stats) -> Any:
    """Something that the data set returns. Raises as `own_dataset` does."""

    def work() -> Any:
        torch.set_num_threads(1)
        dataset: Any = loader.dataset
        if isinstance(dataset, IterableDataset):
            return next(_for_ever(dataset))
        indices = next(_for_ever(loader.batch_sampler or loader.sampler))
        if loader.batch_sampler is None:
            return dataset[indices]
        together = getattr(dataset, "__getitems__", None)
        return together(indices)[0] if together else dataset[indices[0]]

    return within(stats, work)


def _cpu_stage(
    name: Literal["fetch", "decode"],
    spent: Sequence[Block],
    share: Share,
    stats: Stats,
    note: str | None = None,
) -> Stage:
    xs = [
        seconds_per_sample(Costs(block.cpu_s / block.samples), share.cpus, share.workers)
        for block in spent
    ]
    cpu_s = _mean_cpu_s(spent)
    return Stage(
        name=name,
        samples_per_s=rate_of_blocks(xs, stats.alpha_pass),
        cpu_ms_per_sample=round(1e3 * cpu_s, 4),
        note=note or cpu_note(cpu_s),
    )


def _mean_cpu_s(spent: Sequence[Block]) -> float:
    return sum(block.cpu_s / block.samples for block in spent) / len(spent)


@dataclass(frozen=True)
class _Kept:
    """Encoded samples in memory, under the names they have on storage."""

    contents: tuple[bytes, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.contents)

    def fetch(self, index: int) -> bytes:
        return self.contents[index]

    def name(self, index: int) -> str:
        return self.names[index]


def _kept(source: Source, seed: int, seconds: float) -> _Kept:
    """A few samples, read within about so long. Raises StageFailed, and OSError as it comes."""
    contents: dict[str, bytes] = {}
    until, size = time.monotonic() + seconds, 0
    last: OSError | None = None
    picks = iter(EndlessShuffle(len(source), seed))
    for _, index in zip(range(min(len(source), _KEPT_SAMPLES)), picks, strict=False):
        try:
            data = source.fetch(index)
        except (FileNotFoundError, PermissionError) as error:
            last = error
            continue
        contents[source.name(index)] = data
        size += len(data)
        if size >= _KEPT_BYTES or time.monotonic() >= until:
            break
    if not contents:
        raise StageFailed(f"no sample could be read: {last}")
    return _Kept(tuple(contents.values()), tuple(contents))


def _loads(loader: DataLoader[Any], samples_in: Callable[[Any], int]) -> Callable[[], int]:
    """Loads what a worker would be asked for next, and says how many samples that were."""
    dataset: Any = loader.dataset
    in_item = samples_in if loader.batch_sampler is None else one
    if isinstance(dataset, IterableDataset):
        items = _for_ever(dataset)
        return lambda: in_item(next(items))
    if loader.batch_sampler is None:
        keys = _for_ever(loader.sampler)
        return lambda: in_item(dataset[next(keys)])
    together = getattr(dataset, "__getitems__", None)
    if together:
        batches = _for_ever(loader.batch_sampler)
        return lambda: len(together(next(batches)))
    indices = (index for batch in _for_ever(loader.batch_sampler) for index in batch)
    return lambda: one(dataset[next(indices)])


def _for_ever(items: Iterable[Any]) -> Iterator[Any]:
    while True:
        empty = True
        for item in items:
            empty = False
            yield item
        if empty:
            raise StageFailed("the data set gives no sample in the main process")
