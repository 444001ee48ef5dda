"""One reader: a small process that reads whole files as a loader's worker does, and counts.

Started by its path (`python -I -S reader.py ...`), so it imports the standard library alone. Orders
come as lines on its standard input, one pass over its files each; counts go to its slot in shared
memory. It reads, advises out what it brought in itself when told to, and judges nothing.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from resource import RUSAGE_SELF, getrusage

# The memory begins with the stop word; then a slot of words for each reader. 128 bytes, so that
# two readers never write to one pair of cache lines, which processors fetch together.
STOP = 0
SLOT_WORDS = 16
(
    PASSES, BEGAN_NS, LAST_NS, READING, FINISHED, BYTES, DISK_BYTES, OPEN_NS, CPU_NS, BROUGHT_IN,
    ERRORS, LET_GO, CLAIMED, SPENT,
) = range(14)  # fmt: skip

_INBLOCK_BYTES = 512  # getrusage counts read_bytes of /proc/PID/io in these, whatever the device
_BROUGHT_IN_SHARE = 0.95  # of a file's bytes came from the disk: all of its pages are this run's
_MOST_AT_ONCE = 64 << 20  # bytes of one read: readers must not need a large file's size in memory
_NAP_S = 0.005
_MOST_BEHIND_NS = 250_000_000  # of the pace: what a stall held up is not all asked for at once


def slot_at(number: int) -> int:
    """The first word of a reader's slot."""
    return (number + 1) * SLOT_WORDS


class Reader:
    """Reads its share of the files, pass by pass."""

    def __init__(self, words: memoryview, number: int, readers: int, paths: list[bytes]) -> None:
        self._words, self._slot, self._paths = words, slot_at(number), paths
        self._number, self._readers = number, readers
        self._buffer = bytearray(1 << 20)
        self._pace_ns = self._until = self._evict = 0
        self._read: list[bytes] = []
        self._ours: list[bytes] = []

    def obey(self, order: str) -> None:
        """One order: `first` or `again`, with PACE_NS UNTIL_BYTES EVICT; or `let_go`.

        PACE_NS lies between two samples of all readers together, 0: no pace. UNTIL_BYTES is what
        all of them together may have read since their start.
        """
        name, *numbers = order.split()
        self._set(BEGAN_NS, time.monotonic_ns())
        cpu = time.process_time_ns()
        if name == "let_go":
            self._let_go()
        else:
            self._pace_ns, self._until, self._evict = map(int, numbers)
            (self._first if name == "first" else self._again)()
        self._add(CPU_NS, time.process_time_ns() - cpu)
        self._add(PASSES, 1)

    def _first(self) -> None:
        """Each file once; what came from the disk is told file by file."""
        before = getrusage(RUSAGE_SELF).ru_inblock
        for path in self._due(self._paths):
            size = self._fetch(path)
            after = getrusage(RUSAGE_SELF).ru_inblock
            # Directories and inodes are read, too: a file cannot have given more than it has.
            from_disk = min(size, (after - before) * _INBLOCK_BYTES)
            before = after
            if size:
                self._read.append(path)
                self._add(DISK_BYTES, from_disk)
                if from_disk >= _BROUGHT_IN_SHARE * size:
                    self._ours.append(path)
                    self._set(BROUGHT_IN, len(self._ours))

    def _again(self) -> None:
        """The same files, again and again until it is stopped."""
        if not self._read:
            while not self._words[STOP]:  # the others' pass is not over because of this
                time.sleep(_NAP_S)
            return
        self._evict = 0
        before, already = getrusage(RUSAGE_SELF).ru_inblock, self._words[self._slot + BYTES]
        for path in self._due(chain.from_iterable(repeat(self._read))):
            self._fetch(path)
        read = self._words[self._slot + BYTES] - already
        disk = (getrusage(RUSAGE_SELF).ru_inblock - before) * _INBLOCK_BYTES
        self._add(DISK_BYTES, min(read, disk))

    def _let_go(self) -> None:
        """Advise out the pages that the first pass brought in, and no others."""
        for path in self._ours:
            if self._words[STOP]:
                return
            try:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
            self._add(LET_GO, 1)

    def _fetch(self, path: bytes) -> int:
        """Read a whole file and count it; its bytes, 0 for an error.

        Into memory that is used again: what a loader pays for its bytes object is not storage's.
        """
        words, slot, clock = self._words, self._slot, time.monotonic_ns
        began = clock()
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(file).st_size
                opened = clock()
                words[slot + CLAIMED] = words[slot + BYTES] + size
                if self._everybody_claims() > self._until:
                    words[slot + CLAIMED] = words[slot + BYTES]
                    words[slot + SPENT] += 1
                    return 0
                words[slot + READING] = 1
                if self._evict:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                if size > len(self._buffer):
                    self._buffer = bytearray(min(size, _MOST_AT_ONCE))
                left = size
                while left > 0 and (read := os.readv(file, [self._buffer])):
                    left -= read
            finally:
                os.close(file)
                words[slot + READING] = 0
        except OSError:
            words[slot + ERRORS] += 1
            return 0
        words[slot + OPEN_NS] += opened - began
        words[slot + BYTES] += size - left
        words[slot + LAST_NS] = clock()
        words[slot + FINISHED] += 1
        return size - left

    def _due(self, paths: Iterable[bytes]) -> Iterator[bytes]:
        """The paths, each when its time has come, until a stop, the end or the last byte allowed.

        Each reader has its equal share of the pace.
        """
        words, clock, pace_ns = self._words, time.monotonic_ns, self._pace_ns
        due, spent = clock() + self._number * pace_ns, words[self._slot + SPENT]
        for path in paths:
            if pace_ns:
                while (early := due - clock()) > 0 and not words[STOP]:
                    time.sleep(min(_NAP_S, early / 1e9))
                due = max(due + pace_ns * self._readers, clock() - _MOST_BEHIND_NS)
            if words[STOP]:
                return
            yield path
            if words[self._slot + SPENT] != spent:
                return

    def _everybody_claims(self) -> int:
        """Bytes that were read and those that are being read: nobody begins what is too much."""
        return sum(self._words[slot_at(0) + CLAIMED : slot_at(self._readers) : SLOT_WORDS])

    def _set(self, word: int, value: int) -> None:
        self._words[self._slot + word] = value

    def _add(self, word: int, value: int) -> None:
        self._words[self._slot + word] += value


def main(arguments: list[str]) -> None:
    """MEMORY_FD PATHS_FD NUMBER READERS FIRST_BYTE BYTES: then orders, until the input ends."""
    memory_fd, paths_fd, number, readers, first_byte, size = map(int, arguments)
    memory = mmap.mmap(memory_fd, 8 * slot_at(readers))
    paths = os.pread(paths_fd, size, first_byte).split(b"\0") if size else []
    reader = Reader(memoryview(memory).cast("Q"), number, readers, paths)
    # The loader's workers have a file system's first look behind them, too; ours begins on order.
    for order in sys.stdin:
        reader.obey(order)


if __name__ == "__main__":
    main(sys.argv[1:])
