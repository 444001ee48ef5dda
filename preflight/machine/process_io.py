"""What processes have read, as the kernel accounts it (proc_pid_io(5))."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.machine.kernel_text import integer
from preflight.machine.root import Root


def read_bytes(root: Root, pids: Iterable[int]) -> int | None:
    """Bytes that these have read from files, memory or disk alike; None where none can be asked."""
    return _total(root, pids, "rchar")


def disk_bytes(root: Root, pids: Iterable[int]) -> int | None:
    """Bytes that a block device had to give for these; mmap's count, those of a server do not."""
    return _total(root, pids, "read_bytes")


def _total(root: Root, pids: Iterable[int], name: str) -> int | None:
    texts = [root.read_text(f"/proc/{pid}/io") for pid in pids]
    known = [n for text in texts if text is not None and (n := _field(text, name)) is not None]
    return sum(known) if known else None


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return integer(value.strip())
    return None
