"""What loader workers report while they run: shared slots that they write and we read.

One writer per slot and aligned 8-byte stores: no lock, no message, nothing in /dev/shm or a
temporary directory. Reading a slot never waits for its worker. Nothing here judges a rate.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from typing import Any, Literal

from preflight.memfd import anonymous_file

# The memory begins with a token that tells it from anything else, then come the slots.
_TOKEN_BYTES = 16
_SLOTS_AT = 128
# A slot: thirteen words, then the names. 128 bytes for the words keep two workers' stores out of
# one pair of cache lines, which processors fetch together.
_FINISHED, _CORRUPT, _STARTED_NS, _PID, _WALL_NS, _CPU_NS, _EMPTY, _NAMES = range(8)
_COLLATE_WALL_NS, _COLLATE_CPU_NS, _GETITEM_SINCE_NS, _COLLATE_SINCE_NS, _LINE = range(8, 13)
_WORDS = 13
_NAMES_AT = 128
MAX_NAMES = 4
NAME_BYTES = 200
_LINE_NAME = MAX_NAMES - 1
_SLOT_BYTES = 1024


Phase = Literal["getitem", "collate", "between"]
"""Where a worker is: in the dataset, in collate, or in neither."""


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
    collate_wall_ns: int
    """Time inside the loader's collate_fn."""
    collate_cpu_ns: int
    getitem_since_ns: int | None
    """time.monotonic_ns() when it went into the dataset, where it has not come back yet."""
    collate_since_ns: int | None
    line: str | None
    """The line of the job's own code that it was most often seen in; None: nobody looked."""


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

    def __len__(self) -> int:
        """How many workers have a slot."""
        return len(self._slots)

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

    def enter_getitem(self, at_ns: int) -> None:
        """It goes into the dataset; 0: it has come back, or raised."""
        self._words[self._first_word + _GETITEM_SINCE_NS] = at_ns

    def enter_collate(self, at_ns: int) -> None:
        """It goes into collate; 0: it has come back, or raised."""
        self._words[self._first_word + _COLLATE_SINCE_NS] = at_ns

    def collated(self, wall_ns: int, cpu_ns: int) -> None:
        """One more batch was put together, in so long."""
        self._words[self._first_word + _COLLATE_WALL_NS] += wall_ns
        self._words[self._first_word + _COLLATE_CPU_NS] += cpu_ns

    def phase(self) -> Phase:
        """Where the worker is at this moment."""
        words, at = self._words, self._first_word
        if words[at + _GETITEM_SINCE_NS]:
            return "getitem"
        return "collate" if words[at + _COLLATE_SINCE_NS] else "between"

    def pid(self) -> int | None:
        """The worker's process, None before it has started."""
        return self._words[self._first_word + _PID] or None

    def say_line(self, line: str) -> None:
        """Where it was most often seen; for a dataset that has no corrupt names to say."""
        at = self._first_name + _LINE_NAME * NAME_BYTES
        self._memory[at : at + NAME_BYTES] = _padded(line)
        self._words[self._first_word + _LINE] = 1

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
        text = _padded(name)
        used = self._words[self._first_word + _NAMES]
        if used < MAX_NAMES and text not in self._names(used):
            at = self._first_name + used * NAME_BYTES
            self._memory[at : at + NAME_BYTES] = text
            self._words[self._first_word + _NAMES] = used + 1
        self._words[self._first_word + _CORRUPT] += 1

    def read(self) -> SlotRecord:
        """What the worker has reported."""
        words = self._words[self._first_word : self._first_word + _WORDS].tolist()
        line = self._names(MAX_NAMES)[_LINE_NAME] if words[_LINE] else b""
        return SlotRecord(
            finished=words[_FINISHED],
            corrupt=words[_CORRUPT],
            started_ns=words[_STARTED_NS] or None,
            pid=words[_PID] or None,
            getitem_wall_ns=words[_WALL_NS],
            getitem_cpu_ns=words[_CPU_NS],
            empty=bool(words[_EMPTY]),
            corrupt_names=tuple(map(_text, self._names(words[_NAMES]))),
            collate_wall_ns=words[_COLLATE_WALL_NS],
            collate_cpu_ns=words[_COLLATE_CPU_NS],
            getitem_since_ns=words[_GETITEM_SINCE_NS] or None,
            collate_since_ns=words[_COLLATE_SINCE_NS] or None,
            line=_text(line) or None,
        )

    def _names(self, used: int) -> list[bytes]:
        starts = (self._first_name + number * NAME_BYTES for number in range(min(used, MAX_NAMES)))
        return [self._memory[at : at + NAME_BYTES] for at in starts]


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


def _padded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")[-NAME_BYTES:].ljust(NAME_BYTES, b"\0")


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "replace")


def _size(workers: int) -> int:
    return _SLOTS_AT + workers * _SLOT_BYTES
