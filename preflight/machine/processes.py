"""How many processes, threads, open files and locked bytes we may have."""

from __future__ import annotations

from preflight.facts import Processes
from preflight.machine.cgroup import Cgroups
from preflight.machine.kernel_text import integer
from preflight.machine.root import Root


def read_processes(root: Root, cgroups: Cgroups) -> Processes:
    """The limits in force: soft rlimits, and the visible pids cgroup with the least room left."""
    maximum, current = _pids(root, cgroups)
    return Processes(
        pids_max=maximum,
        pids_current=current,
        nproc=root.rlimit("RLIMIT_NPROC").soft,
        nofile=root.rlimit("RLIMIT_NOFILE").soft,
        memlock_bytes=root.rlimit("RLIMIT_MEMLOCK").soft,
    )


def _pids(root: Root, cgroups: Cgroups) -> tuple[int | None, int | None]:
    """(limit, in use) where the fewest are left; the limit is None where none is set."""
    hierarchy = cgroups.get("pids")
    if hierarchy is None:
        return None, None
    limited = []
    for folder, text in hierarchy.read(root, "pids.max", "pids.max"):
        limit = integer(text)
        current = integer(root.read_text(f"{folder}/pids.current"))
        if limit is not None:
            limited.append((limit - (current or 0), limit, current))
    if limited:
        return min(limited, key=lambda level: level[0])[1:]
    return None, integer(root.read_text(f"{hierarchy.dirs[0]}/pids.current"))
