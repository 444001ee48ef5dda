"""What loader workers report while they run: shared slots that they write and we read.

One writer per slot and aligned 8-byte stores: no lock, no message, nothing in /dev/shm or a
temporary directory. Reading a slot never waits for its worker. Nothing here judges a rate.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from preflight.memfd import anonymous_file

# The memory begins with a token that tells it from anything else, then come the slots.
_TOKEN_BYTES = 16
_SLOTS_AT = 128
# A slot: eight words, then the names. 128 bytes for the words keep two workers' stores out of one
# pair of cache lines, which processors fetch together.
_FINISHED, _CORRUPT, _STARTED_NS, _PID, _WALL_NS, _CPU_NS, _EMPTY, _NAMES = range(8)
_NAMES_AT = 128
MAX_NAMES = 4
NAME_BYTES = 200
_SLOT_BYTES = 1024


SamplesIn = Callable[[Any], int]
"""How many samples something is that a dataset returned for one index, or by one next()."""


@dataclass(frozen=True)
class SlotRecord:
    """What one worker has reported so far."""

    finished: int
    """Samples that its dataset has returned."""
    corrupt: int
    """Samples that could not be decoded; others were returned in their place."""
    started_ns: int | None
    """time.monotonic_ns() when the worker was ready to load, None before."""
    pid: int | None
    getitem_wall_ns: int
    """Time inside the dataset (__getitem__, __getitems__ or next)."""
    getitem_cpu_ns: int
    """CPU time of the calling thread inside the dataset."""
    empty: bool
    """Its part of an IterableDataset holds no sample, so it will never finish one."""
    corrupt_names: tuple[str, ...]
    """The first few samples that could not be decoded; long names keep their end."""


class Counters:
    """The slots of all workers of one loader.

    Forked workers inherit the memory; others open it as /proc/<main process>/fd/<n>. A worker that
    may not (a main process that is not dumpable) counts where nobody reads: its slot keeps pid
    None, and the reader has to go by batch arrivals.
    """

    def __init__(self, memory: mmap.mmap, workers: int, path: str | None, fd: int | None) -> None:
        self._memory = memory
        self._words = memoryview(memory).cast("Q")
        self._path = path
        self._fd = fd
        self._slots = [Slot(memory, self._words, number) for number in range(workers)]

    @classmethod
    def create(cls, workers: int) -> Counters:
        """Zeroed slots for `workers` workers. Raises OSError when there is no memory for them."""
        fd = anonymous_file("preflight-counters")
        os.ftruncate(fd, _size(workers))
        memory = mmap.mmap(fd, _size(workers))
        memory[:_TOKEN_BYTES] = os.urandom(_TOKEN_BYTES)
        return cls(memory, workers, f"/proc/{os.getpid()}/fd/{fd}", fd)

    def slot(self, worker_id: int) -> Slot:
        """The slot of one worker, for that worker to write to."""
        return self._slots[worker_id]

    def read(self) -> list[SlotRecord]:
        """What every worker has reported, in order of worker ids."""
        return [slot.read() for slot in self._slots]

    def close(self) -> None:
        """Give the memory back. Workers that still run keep theirs."""
        self._words.release()
        self._memory.close()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._path, self._memory[:_TOKEN_BYTES], len(self._slots))


class Slot:
    """One worker's place. Only that worker calls anything but `read`."""

    def __init__(self, memory: mmap.mmap, words: memoryview, number: int) -> None:
        self._memory = memory
        self._words = words
        first_byte = _SLOTS_AT + number * _SLOT_BYTES
        self._first_word = first_byte // 8
        self._first_name = first_byte + _NAMES_AT

    def start(self) -> None:
        """The worker is ready to load."""
        self._words[self._first_word + _PID] = os.getpid()
        self._words[self._first_word + _STARTED_NS] = time.monotonic_ns()

    def finish(self, samples: int, wall_ns: int, cpu_ns: int) -> None:
        """The dataset returned `samples` more, after so long."""
        self._words[self._first_word + _WALL_NS] += wall_ns
        self._words[self._first_word + _CPU_NS] += cpu_ns
        self._words[self._first_word + _FINISHED] += samples

    def is_empty(self) -> None:
        """There is nothing for this worker to load."""
        self._words[self._first_word + _EMPTY] = 1

    def corrupt(self, name: str) -> None:
        """One more sample could not be decoded."""
        text = name.encode("utf-8", "surrogateescape")[-NAME_BYTES:].ljust(NAME_BYTES, b"\0")
        used = self._words[self._first_word + _NAMES]
        if used < MAX_NAMES and text not in self._names(used):
            at = self._first_name + used * NAME_BYTES
            self._memory[at : at + NAME_BYTES] = text
            self._words[self._first_word + _NAMES] = used + 1
        self._words[self._first_word + _CORRUPT] += 1

    def read(self) -> SlotRecord:
        """What the worker has reported."""
        words = self._words[self._first_word : self._first_word + _NAMES + 1].tolist()
        names = (name.rstrip(b"\0").decode("utf-8", "replace") for name in self._names(words[-1]))
        return SlotRecord(
            finished=words[_FINISHED],
            corrupt=words[_CORRUPT],
            started_ns=words[_STARTED_NS] or None,
            pid=words[_PID] or None,
            getitem_wall_ns=words[_WALL_NS],
            getitem_cpu_ns=words[_CPU_NS],
            empty=bool(words[_EMPTY]),
            corrupt_names=tuple(names),
        )

    def _names(self, used: int) -> list[bytes]:
        starts = (self._first_name + number * NAME_BYTES for number in range(min(used, MAX_NAMES)))
        return [self._memory[at : at + NAME_BYTES] for at in starts]


@dataclass(frozen=True)
class WorkerInit:
    """A worker_init_fn that says which process a worker is and when it was ready."""

    counters: Counters

    def __call__(self, worker_id: int) -> None:
        """Called by torch in the worker, before its first sample."""
        self.counters.slot(worker_id).start()


def worker_init(counters: Counters) -> WorkerInit:
    """The `worker_init_fn` for a DataLoader whose dataset is `counted`."""
    return WorkerInit(counters)


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
        wall, cpu = time.monotonic_ns(), time.thread_time_ns()
        loaded = load(argument)
        wall_ns, cpu_ns = time.monotonic_ns() - wall, time.thread_time_ns() - cpu
        if samples is None:
            samples_in = self._preflight_samples_in
            samples = 1 if samples_in is None else samples_in(loaded)
        self._preflight_slot().finish(samples, wall_ns, cpu_ns)
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


def _attach(path: str | None, token: bytes, workers: int) -> Counters:
    size = _size(workers)
    fd = _open_memory(path, token) if path else None
    if fd is None:
        return Counters(mmap.mmap(-1, size), workers, None, None)
    try:
        return Counters(mmap.mmap(fd, size), workers, path, None)
    finally:
        os.close(fd)


def _open_memory(path: str, token: bytes) -> int | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A worker that starts late may find the main process done with the memory, and its number
        # given to another file, which must not be written to.
        ours = os.pread(fd, _TOKEN_BYTES, 0) == token
    except OSError:
        ours = False
    if not ours:
        os.close(fd)
        return None
    return fd


def _size(workers: int) -> int:
    return _SLOTS_AT + workers * _SLOT_BYTES
