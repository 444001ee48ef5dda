"""How much of a block's CPU time others took from us: plain numbers in, a share out.

Pure: `preflight.machine` reads the counters, `stopping` decides what a disturbed block is worth.
"""

from __future__ import annotations

from collections.abc import Sequence

# CPU counters tick at 10 ms: under this a block of 0.25 s cannot tell a neighbour from rounding.
LEAST_DISTURBANCE = 0.03


def disturbance(
    dt_s: float,
    cpus: float,
    foreign_cpu_s: float | None,
    own_cpu_s: float,
    delay_share: float | None,
) -> float | None:
    """The share f of a block that others took, 0 to 1; None where the host hides what it needs.

    f = max(0, min(foreign / (N dt), delay, 1 - own / (N dt))), under 0.03 counted as 0. Each term
    removes one false alarm: neighbours on CPUs we could have done without; our own threads
    waiting for each other; our own quota, which we used up ourselves.

    Args:
        dt_s: length of the block.
        cpus: N, the effective CPUs (quota and affinity applied; may be a fraction).
        foreign_cpu_s: CPU seconds of others on the CPUs we may run on (`foreign_cpu_s`).
        own_cpu_s: CPU seconds of our own process tree.
        delay_share: share of the block that our processes were runnable and not running
            (`delay_share`).
    """
    if foreign_cpu_s is None or delay_share is None:
        return None
    f = min(foreign_cpu_s / (cpus * dt_s), delay_share, 1 - own_share(dt_s, cpus, own_cpu_s))
    return f if f >= LEAST_DISTURBANCE else 0.0


def own_share(dt_s: float, cpus: float, own_cpu_s: float) -> float:
    """The share of the effective CPUs that our own processes used: own / (N dt)."""
    return own_cpu_s / (cpus * dt_s)


def foreign_cpu_s(busy_cpu_s: float, own_cpu_s: float) -> float:
    """CPU seconds of others, at least 0.

    Args:
        busy_cpu_s: neither idle nor iowait nor steal, summed over the CPUs of our affinity mask
            (the per-cpu lines of /proc/stat).
        own_cpu_s: CPU seconds of our own process tree.
    """
    return max(0.0, busy_cpu_s - own_cpu_s)


def delay_share(dt_s: float, worker_delays_s: Sequence[float], main_delay_s: float) -> float:
    """The larger of the workers' mean and the main process's run delay, as a share of the block.

    The larger one, because either the workers or the process that collects from them is what the
    loader waits for. A process with several threads adds theirs up, so a share may exceed 1.

    Args:
        dt_s: length of the block.
        worker_delays_s: seconds each worker's threads were runnable and not running
            (the second field of /proc/PID/task/*/schedstat).
        main_delay_s: the same of the main process.
    """
    workers = sum(worker_delays_s) / len(worker_delays_s) if worker_delays_s else 0.0
    return max(workers, main_delay_s) / dt_s
