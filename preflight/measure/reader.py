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
# Bytes are put aside for several files at once, but never so many that others go without.
_MOST_CLAIMED, _CLAIMS = 4 << 20, 16
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
        self._pace_ns = self._until = self._evict = self._chunk = 0
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
            room = self._until - self._everybody_claims()
            self._chunk = max(0, min(_MOST_CLAIMED, room // (_CLAIMS * self._readers)))
            (self._first if name == "first" else self._again)()
        self._add(CPU_NS, time.process_time_ns() - cpu)
        self._add(PASSES, 1)

    def _first(self) -> None:
        """Each file once; what came from the disk is told file by file."""
        words, disk, ours = self._words, self._slot + DISK_BYTES, self._ours
        before, total = getrusage(RUSAGE_SELF).ru_inblock, words[disk]
        for path, size in self._reads(self._paths):
            after = getrusage(RUSAGE_SELF).ru_inblock
            if size:
                self._read.append(path)
            if after != before and size:
                # Directories and inodes are read, too: a file cannot have given more than it has.
                from_disk = min(size, (after - before) * _INBLOCK_BYTES)
                total += from_disk
                words[disk] = total
                if from_disk >= _BROUGHT_IN_SHARE * size:
                    ours.append(path)
            before = after
        self._set(BROUGHT_IN, len(ours))

    def _again(self) -> None:
        """The same files, again and again until it is stopped."""
        if not self._read:
            while not self._words[STOP]:  # the others' pass is not over because of this
                time.sleep(_NAP_S)
            return
        self._evict = 0
        before, already = getrusage(RUSAGE_SELF).ru_inblock, self._words[self._slot + BYTES]
        for _ in self._reads(chain.from_iterable(repeat(self._read))):
            pass
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

    def _reads(self, paths: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
        """Read each file when its time has come; the path and its bytes, for those that could be.

        Until a stop, the end, or the last byte that all readers together may read. Each reader has
        its equal share of the pace. The bytes go into memory that is used again: what a loader pays
        for its bytes object is not storage's. One long function, because here every call shows.
        """
        words, slot, clock, pace_ns = self._words, self._slot, time.monotonic_ns, self._pace_ns
        open_, fstat, readv, close = os.open, os.fstat, os.readv, os.close
        flags, buffers, room = os.O_RDONLY | os.O_CLOEXEC, [bytearray(1 << 20)], 1 << 20
        finished, total, open_ns = (words[slot + word] for word in (FINISHED, BYTES, OPEN_NS))
        due, claimed = clock() + self._number * pace_ns, total
        for path in paths:
            if pace_ns:
                while (early := due - clock()) > 0 and not words[STOP]:
                    time.sleep(min(_NAP_S, early / 1e9))
                due = max(due + pace_ns * self._readers, clock() - _MOST_BEHIND_NS)
            if words[STOP]:
                break
            began, left = clock(), 0
            try:
                file = open_(path, flags)
                try:
                    size = left = fstat(file).st_size
                    open_ns += clock() - began
                    if total + size > claimed:
                        claimed = self._claim(total, size)
                        if total + size > claimed:
                            words[slot + SPENT] += 1
                            break
                    words[slot + READING] = 1
                    if self._evict:
                        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                    if size > room:
                        room = min(size, _MOST_AT_ONCE)
                        buffers = [bytearray(room)]
                    while left > 0 and (read := readv(file, buffers)):
                        left -= read
                finally:
                    close(file)
                    words[slot + READING] = 0
            except OSError:
                words[slot + ERRORS] += 1
                continue
            total += size - left
            finished += 1
            words[slot + BYTES] = total
            words[slot + OPEN_NS] = open_ns
            words[slot + LAST_NS] = clock()
            words[slot + FINISHED] = finished
            yield path, size - left
        self._set(CLAIMED, total)

    def _claim(self, total: int, size: int) -> int:
        """Put aside what the next files take; the bytes that this reader may have read by then.

        Everybody adds up all claims after making one, so that together they never exceed the limit.
        """
        for wanted in (size + self._chunk, size):
            self._set(CLAIMED, total + wanted)
            if self._everybody_claims() <= self._until:
                return total + wanted
        self._set(CLAIMED, total)
        return total

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
