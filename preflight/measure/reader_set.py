"""The reader processes and the memory they count in: started, told what to do, ended.

They are small processes without torch (`preflight.measure.reader`) of our own group, so that they
end with us. Nothing here waits for one that hangs, and nothing is timed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from preflight.measure import reader as words
from preflight.measure.reader import SLOT_WORDS, slot_at
from preflight.memfd import anonymous_file

_END_GRACE_S = 2.0


class ReaderSet:
    """One process for each share of the files."""

    def __init__(self, shares: Sequence[Sequence[bytes]]) -> None:
        """Start them. Raises OSError where no process or no memory is to be had."""
        self.count = len(shares)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._fds = [anonymous_file("preflight-readers"), anonymous_file("preflight-paths")]
        os.ftruncate(self._fds[0], 8 * slot_at(self.count))
        self._memory = mmap.mmap(self._fds[0], 8 * slot_at(self.count))
        self._words = memoryview(self._memory).cast("Q")
        try:
            self._start([b"\0".join(share) for share in shares])
        except BaseException:
            self.close()
            raise

    def _start(self, shares: Sequence[bytes]) -> None:
        at = 0
        for number, share in enumerate(shares):
            _write_all(self._fds[1], share)
            numbers = (*self._fds, number, self.count, at, len(share))
            at += len(share)
            command = [sys.executable, "-I", "-S", words.__file__, *map(str, numbers)]
            self._processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=self._fds
                )
            )

    @property
    def pids(self) -> list[int]:
        """Of all readers."""
        return [process.pid for process in self._processes]

    def order(self, line: str) -> None:
        """Tell every reader what to do next; see `Reader.obey`."""
        self._words[words.STOP] = 0
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # told of as a reader that died
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()

    def stop(self) -> None:
        """Let them end their pass with the file that they are at; does not wait for it."""
        self._words[words.STOP] = 1

    def column(self, word: int) -> list[int]:
        """One word of every slot, in the readers' order."""
        return self._words[slot_at(0) + word : slot_at(self.count) : SLOT_WORDS].tolist()

    def total(self, word: int) -> int:
        """The sum of a column."""
        return sum(self.column(word))

    def raise_if_dead(self) -> None:
        """Raises RuntimeError when a reader has ended; its traceback is on standard error."""
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"a reading process ended early (exit {process.returncode})")

    def close(self) -> None:
        """End the readers; one that hangs in the kernel is left to whoever ends our group."""
        for process in self._processes:
            process.kill()
        deadline = time.monotonic() + _END_GRACE_S
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        self._words.release()
        self._memory.close()
        for fd in self._fds:
            os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
