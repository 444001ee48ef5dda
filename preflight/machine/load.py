"""Counters that say who used the CPUs while we measured: ours, others', the hypervisor's.

Cumulative seconds: the caller subtracts two readings. Nothing here judges; what a difference
means is `preflight.measure.disturbance`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from preflight.facts import Load
from preflight.machine.kernel_text import integer
from preflight.machine.root import Root

# /proc/stat: user nice system idle iowait irq softirq steal; guest time is within user.
_BUSY = (0, 1, 2, 5, 6)
_STEAL = 7
# /proc/PID/stat after the command's closing bracket: utime and stime (proc_pid_stat(5)).
_UTIME, _STIME = 11, 12


@dataclass
class _Process:
    """What one process has used, over threads that come and go."""

    cpu_s: float = 0.0
    delay_s: float | None = None


class LoadMeter:
    """Reads the counters of a set of CPUs and of a tree of processes.

    A read costs about 10 microseconds a thread. What a thread used between the last read and its
    end is not seen.
    """

    def __init__(
        self,
        root: Root,
        cpus: frozenset[int],
        pids: Callable[[], Iterable[int]],
        siblings: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """`cpus` is our affinity mask; `pids` names the processes that are ours at each read.

        `siblings` are ours as well where CPU time is counted, but it is not them who wait for us
        or for whom we wait: their run delay is left out.
        """
        self._root = root
        self._cpus = cpus
        self._pids = pids
        self._siblings = siblings
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._processes: dict[int, _Process] = {}
        self._seen: dict[tuple[int, str], tuple[float, float]] = {}

    def read(self, at_s: float) -> Load:
        """All counters now; `at_s` is the caller's monotonic clock, kept with them."""
        busy_s, steal_s = self._machine()
        living = list(self._pids())
        for pid in {*living, *self._siblings()}:
            self._count(pid)
        used = [process.cpu_s for process in self._processes.values()]
        return Load(
            at_s=at_s,
            busy_s=busy_s,
            steal_s=steal_s,
            own_cpu_s=sum(used) if used else None,
            run_delay_s={
                pid: self._processes[pid].delay_s if pid in self._processes else None
                for pid in living
            },
        )

    def cpu_s(self, pids: Iterable[int]) -> float | None:
        """What these have used up to the last read; None where one of them could not be read."""
        used = [self._processes[pid].cpu_s for pid in pids if pid in self._processes]
        return sum(used) if used else None

    def delay_s(self, pids: Iterable[int]) -> float | None:
        """How long these could have run and had no CPU; None where it is hidden."""
        known = [self._processes[pid].delay_s for pid in pids if pid in self._processes]
        waited = [delay for delay in known if delay is not None]
        return sum(waited) if waited else None

    def _machine(self) -> tuple[float | None, float | None]:
        lines = cpu_ticks(self._root.read_text("/proc/stat"))
        ours = [lines[cpu] for cpu in self._cpus if cpu in lines]
        # Some sandboxes show all zeros, and lxcfs numbers the CPUs anew: neither is about ours.
        if len(ours) != len(self._cpus) or not any(map(sum, ours)):
            return None, None
        busy = sum(ticks[field] for ticks in ours for field in _BUSY)
        return busy * self._tick_s, sum(ticks[_STEAL] for ticks in ours) * self._tick_s

    def _count(self, pid: int) -> None:
        """Add what the process used since the last read."""
        folder = f"/proc/{pid}"
        threads = {}
        for thread in self._root.list_dir(f"{folder}/task"):
            times = parse_schedstat(self._root.read_text(f"{folder}/task/{thread}/schedstat"))
            if times is not None:
                threads[thread] = times
        if threads:
            for thread, (cpu_s, delay_s) in threads.items():
                self._add(pid, thread, cpu_s, delay_s)
            return
        known = self._processes.get(pid)
        if known and known.delay_s is not None:
            return  # it is ending; its ticks would count a second time what its threads used
        ticks = parse_stat_ticks(self._root.read_text(f"{folder}/stat"))
        if ticks is not None:
            self._add(pid, "stat", ticks * self._tick_s, None)

    def _add(self, pid: int, thread: str, cpu_s: float, delay_s: float | None) -> None:
        process = self._processes.setdefault(pid, _Process())
        last_cpu_s, last_delay_s = self._seen.get((pid, thread), (0.0, 0.0))
        # A number that fell belongs to a new thread or process with an old number.
        if cpu_s < last_cpu_s:
            last_cpu_s = last_delay_s = 0.0
        process.cpu_s += cpu_s - last_cpu_s
        if delay_s is not None:
            process.delay_s = (process.delay_s or 0.0) + max(0.0, delay_s - last_delay_s)
        self._seen[pid, thread] = (cpu_s, delay_s or 0.0)


def cpu_ticks(stat: str | None) -> dict[int, list[int]]:
    """The first eight counters of each cpuN line of /proc/stat, in clock ticks."""
    lines = {}
    for line in (stat or "").splitlines():
        if not line.startswith("cpu"):
            break  # the counters of interrupts behind them can be long
        words = line.split()
        cpu = integer(words[0][3:])
        ticks = [integer(word) for word in words[1 : _STEAL + 2]]
        counted = [tick for tick in ticks if tick is not None]
        if cpu is not None and len(counted) == _STEAL + 1:
            lines[cpu] = counted
    return lines


def parse_schedstat(text: str | None) -> tuple[float, float] | None:
    """(seconds on a CPU, seconds runnable and waiting) of a task's schedstat.

    Documentation/scheduler/sched-stats.rst: time on the CPU (ns), time on a run queue (ns), number
    of turns. A task without a turn is one that a kernel without these counters shows.
    """
    fields = [integer(word) for word in (text or "").split()]
    if len(fields) < 3 or not fields[2] or fields[0] is None or fields[1] is None:
        return None
    return fields[0] / 1e9, fields[1] / 1e9


def parse_stat_ticks(text: str | None) -> int | None:
    """CPU time (utime + stime) of /proc/PID/stat in clock ticks, ended threads included."""
    # The command may hold spaces and brackets; its last bracket ends it.
    fields = (text or "").rpartition(")")[2].split()
    if len(fields) <= _STIME:
        return None
    utime, stime = integer(fields[_UTIME]), integer(fields[_STIME])
    return None if utime is None or stime is None else utime + stime
