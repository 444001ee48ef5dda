"""How fast each stage of the feed is alone, for a reader who asks which one to speed up.

One rank measures, in turn, when all loaders have ended. A rate is what one rank would get while all
ranks do the same, worked out from the CPU time of a sample where they share the CPUs. The slowest
stage's rate is higher than the loader's: stages run one after another. Nothing here judges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils.data import IterableDataset

from preflight.data.generated import Generated
from preflight.data.source import Source
from preflight.job import Sample, Stats
from preflight.machine.root import Root
from preflight.measure.dataset import EndlessShuffle, SampleDataset
from preflight.measure.model_rate import Costs, seconds_per_sample
from preflight.measure.stage_rates import rate_of_blocks, rate_of_copies
from preflight.measure.stage_timing import Block, StageFailed, timed, within
from preflight.model import Rate, Stage

_KEPT_SAMPLES = 32
_KEPT_BYTES = 64 << 20


@dataclass(frozen=True)
class Share:
    """What one rank has of the node."""

    effective_cpus: float
    ranks: int
    workers: int
    """Of one rank's loader; one where it loads in the main process."""

    @property
    def cpus(self) -> float:
        """CPUs of one rank while all ranks use theirs."""
        return self.effective_cpus / self.ranks


class Tried(NamedTuple):
    """One stage, or why there is none."""

    name: str
    stage: Stage | None
    reason: str | None


class Fetched(Protocol):
    """What a measurement of the storage says of one rank's reads."""

    @property
    def samples_per_s(self) -> Rate:
        """Of one rank, while all ranks read."""

    @property
    def note(self) -> str | None:
        """Where the bytes came from: page cache, first touch, unknown."""


def tried(name: str, measure: Callable[[], Stage | None]) -> Tried:
    """The stage, or in one line what kept it from being measured; the others go on."""
    try:
        stage = measure()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = lines[-1] if lines else "no reason given"  # of a worker's traceback: the error
        kind = "" if isinstance(error, StageFailed) else f"{type(error).__name__}: "
        return Tried(name, None, f"{kind}{text}"[:300])
    return Tried(name, stage, None if stage is not None else "does not apply here")


def fetch(measured: Fetched) -> Stage:
    """The storage's own measurement as a stage."""
    return Stage(name="fetch", samples_per_s=measured.samples_per_s, note=measured.note)


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
        return _one(source.fetch(next(indices)))

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
            lambda: _one(dataset[next(indices)]), stats, time.thread_time, warm_up=len(dataset)
        )

    return _cpu_stage("decode", within(stats, work), share, stats)


def own_dataset(dataset: Any, batch: int, share: Share, stats: Stats, machine: Root) -> Stage:
    """A user's data set, whose fetch and decode cannot be told apart: named decode.

    Its samples may wait, so that more workers than CPUs help: 1 / max(CPU / CPUs of this rank,
    (wait + CPU) / workers), by one thread; CPU time is that of the whole process, since a data set
    may have threads of its own. Raises what the data set raised, and StageFailed.
    """

    def work() -> list[Block]:
        # As in a worker; else the time of one sample would be that of all CPUs.
        torch.set_num_threads(1)
        return timed(_loads(dataset, batch), stats, time.process_time, machine)

    spent = within(stats, work)
    how = "iterator" if _is_iterable(dataset) else "__getitem__"
    xs = [seconds_per_sample(block.costs(), share.cpus, share.workers) for block in spent]
    return Stage(
        name="decode",
        samples_per_s=rate_of_blocks(xs, stats.alpha_pass),
        cpu_ms_per_sample=round(1e3 * _mean_cpu_s(spent), 4),
        note=f"the data set's own {how}",
    )


def copy(readings: Any, subject: str | None, sample_bytes: int) -> Stage | None:
    """The pinned copy to this rank's GPU, from what pinned_copy has measured; None without it.

    One GPU at a time was measured there: what GPUs share (a PCIe switch, host memory) is not in it.

    Args:
        readings: of the check, as the report has them: one object, or one for each GPU.
        subject: the GPU's name there.
        sample_bytes: of one sample as a tensor.
    """
    each = readings if isinstance(readings, list) else [readings]
    for reading in each:
        if reading and reading.get("subject") == subject and reading.get("h2d_gb_per_s"):
            copies = Rate.model_validate(reading["h2d_gb_per_s"])
            rate = rate_of_copies(copies, sample_bytes)
            return Stage(name="copy", samples_per_s=rate, note=f"{copies.value:.1f} GB/s")
    return None


def cpu_note(cpu_s: float) -> str:
    """CPU seconds of a sample in words."""
    return f"{1e3 * cpu_s:.3g} ms of CPU a sample"


def _cpu_stage(
    name: Any, spent: Sequence[Block], share: Share, stats: Stats, note: str | None = None
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


def _one(sample: Any) -> int:
    return 1


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


def _is_iterable(dataset: Any) -> bool:
    return isinstance(dataset, IterableDataset)


def _loads(dataset: Any, batch: int) -> Callable[[], int]:
    """Loads what a worker would ask for next, and says how many samples that were."""
    if _is_iterable(dataset):
        items = _for_ever(dataset)
        return lambda: _one(next(items))
    indices = iter(EndlessShuffle(len(dataset), 0))
    together = getattr(dataset, "__getitems__", None)
    if together:
        return lambda: len(together([next(indices) for _ in range(batch)]))
    return lambda: _one(dataset[next(indices)])


def _for_ever(dataset: Any) -> Iterator[Any]:
    while True:
        empty = True
        for item in dataset:
            empty = False
            yield item
        if empty:
            raise StageFailed("the data set gives no sample in the main process")
