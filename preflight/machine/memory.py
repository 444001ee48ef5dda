"""How much memory we may still use before the kernel kills, and whether it already did.

Page cache counts against a cgroup's limit and is given back when it is needed, so "limit minus
usage" would call every container that read its data set full.
"""

from __future__ import annotations

from typing import NamedTuple

from preflight.facts import Memory
from preflight.machine.cgroup import Cgroups, read_cgroups
from preflight.machine.kernel_text import gib, integer, keyed
from preflight.machine.root import Root

# memory.stat keys of (v2, v1). Given back when memory is short; v1 keeps slab out of memory.stat.
_RECLAIMABLE = (
    ("active_file", "inactive_file", "slab_reclaimable"),
    ("total_active_file", "total_inactive_file"),
)
# ... but what is not written to disk yet has to be written first.
_UNWRITTEN = (("file_dirty", "file_writeback"), ("total_dirty", "total_writeback"))


class Level(NamedTuple):
    """One cgroup's limit and what is left of it, in bytes."""

    limit: int
    headroom: int


def read_memory(root: Root, cgroups: Cgroups) -> Memory:
    """The memory facts; headroom is the lowest of the visible limits and MemAvailable."""
    meminfo = keyed(root.read_text("/proc/meminfo"))
    ram = root.ram()
    total = meminfo.get("MemTotal", 0) * 1024 or ram.total
    # Where meminfo is hidden, free memory is all that is known to be available.
    available = meminfo["MemAvailable"] * 1024 if "MemAvailable" in meminfo else ram.free
    levels = _levels(root, cgroups, total)
    tightest = min(levels, key=lambda level: level.headroom, default=None)
    binding = "MemAvailable"
    if tightest and tightest.headroom < available:
        hierarchy = cgroups.by_controller["memory"]
        name = hierarchy.file_name("memory.limit_in_bytes", "memory.max")
        binding = f"cgroup v{hierarchy.version} {name}"
    return Memory(
        limit_gib=gib(min(level.limit for level in levels)) if levels else None,
        headroom_gib=gib(min(tightest.headroom, available) if tightest else available),
        from_=binding,
        total_gib=gib(total),
        available_gib=gib(available),
    )


def oom_kills(root: Root) -> int | None:
    """Processes of our cgroup that the kernel killed for memory, since the cgroup was made.

    Read it before and after: a difference explains a child that died of SIGKILL. None where the
    kernel does not say (v1 before 4.13, the v2 root cgroup).
    """
    hierarchy = read_cgroups(root).get("memory")
    if hierarchy is None:
        return None
    name = hierarchy.file_name("memory.oom_control", "memory.events")
    return keyed(root.read_text(f"{hierarchy.dirs[0]}/{name}")).get("oom_kill")


def headroom(limit: int, current: int, stat: dict[str, int], version: int) -> int:
    """Bytes that may still be allocated under one cgroup's limit, 0 to limit.

    limit - current + active_file + inactive_file + slab_reclaimable - dirty - writeback, of
    memory.max, memory.current and memory.stat (v1: limit_in_bytes, usage_in_bytes and the keys
    that count descendants). The counters are not read at one instant: the sum is clipped.
    """
    reclaimable, unwritten = _RECLAIMABLE[version == 1], _UNWRITTEN[version == 1]
    left = limit - current
    left += sum(stat.get(key, 0) for key in reclaimable)
    left -= sum(stat.get(key, 0) for key in unwritten)
    return min(max(left, 0), limit)


def _levels(root: Root, cgroups: Cgroups, total: int) -> list[Level]:
    hierarchy = cgroups.get("memory")
    if hierarchy is None:
        return []
    levels = []
    for folder, text in hierarchy.read(root, "memory.limit_in_bytes", "memory.max"):
        limit = integer(text)
        # v1 writes "no limit" as the largest multiple of a page under 2**63.
        if limit is None or not 0 <= limit <= total:
            continue
        usage = hierarchy.file_name("memory.usage_in_bytes", "memory.current")
        # A usage that is hidden counts as none: the limit itself still binds.
        current = integer(root.read_text(f"{folder}/{usage}")) or 0
        stat = keyed(root.read_text(f"{folder}/memory.stat"))
        levels.append(Level(limit, headroom(limit, current, stat, hierarchy.version)))
    return levels
