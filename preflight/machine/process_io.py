"""What processes have read, as the kernel accounts it (proc_pid_io(5)).

It counts read(2) and its like, not what is touched through mmap.
"""

from __future__ import annotations

from collections.abc import Iterable

from preflight.machine.kernel_text import integer
from preflight.machine.root import Root


def read_bytes(root: Root, pids: Iterable[int]) -> int | None:
    """Bytes that these have read from files, memory or disk alike; None where none can be asked."""
    texts = [root.read_text(f"/proc/{pid}/io") for pid in pids]
    known = [n for text in texts if text is not None and (n := parse_rchar(text)) is not None]
    return sum(known) if known else None


def parse_rchar(text: str) -> int | None:
    """Rchar of /proc/PID/io: bytes that reads have returned."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "rchar":
            return integer(value.strip())
    return None
