"""How much memory a process has to itself, so that one more like it would take as much again."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.machine.kernel_text import integer
from preflight.machine.root import Root

_PRIVATE = ("Private_Clean", "Private_Dirty", "Private_Hugetlb")


def most_private_gib(root: Root, pids: Iterable[int]) -> float | None:
    """GiB of the one that has most; None where none can be asked.

    What a worker still shares with the process that forked it is not in it.
    """
    texts = [root.read_text(f"/proc/{pid}/smaps_rollup") for pid in pids]
    return max((gib for text in texts if (gib := parse_private_gib(text or ""))), default=None)


def parse_private_gib(rollup: str) -> float | None:
    """The private parts of /proc/PID/smaps_rollup (proc_pid_smaps_rollup, kB); None without any."""
    found = []
    for line in rollup.splitlines():
        key, _, value = line.partition(":")
        kib = integer(value.removesuffix("kB").strip())
        if key in _PRIVATE and kib is not None:
            found.append(kib)
    return sum(found) / 2**20 if found else None
