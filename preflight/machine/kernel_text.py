"""The formats that kernel files share: a number, lines of "key value", a list of CPUs.

Text in, plain values out. Whatever is not what the kernel writes is left out, never an exception:
a file may be cut off, faked or written by something that only resembles Linux.
"""

from __future__ import annotations

GIB = 1 << 30

# Above what any kernel counter holds, and below what overflows a float later.
_LARGEST = 1 << 64
# The kernel's own bound (CONFIG_NR_CPUS) is 8192; a longer range is garbage, not a machine.
_MOST_CPUS = 1 << 16


def integer(text: str | None) -> int | None:
    """The whole number that the text is; None for anything else ("max", "", 10**30)."""
    try:
        value = int(text or "")
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST else None


def number(text: str | None) -> float | None:
    """The finite number that the text is; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST else None


def keyed(text: str | None) -> dict[str, int]:
    """Lines of "key value" or "key: value unit" as in memory.stat, cpu.stat and meminfo."""
    values = {}
    for line in (text or "").splitlines():
        words = line.split()
        value = integer(words[1]) if len(words) > 1 else None
        if value is not None and value >= 0:
            values[words[0].rstrip(":")] = value
    return values


def cpu_list(text: str | None) -> frozenset[int]:
    """The CPUs (or nodes) of a kernel list such as "0-3,8"; ranges that make no sense add none."""
    cpus: set[int] = set()
    for part in (text or "").split(","):
        low_text, _, high_text = part.strip().partition("-")
        low = integer(low_text)
        high = integer(high_text) if high_text else low
        if low is not None and high is not None and 0 <= low <= high < _MOST_CPUS:
            cpus.update(range(low, high + 1))
    return frozenset(cpus)


def gib(size_bytes: int) -> float:
    """Bytes in GiB, to a tenth of a MiB."""
    return round(size_bytes / GIB, 4)
