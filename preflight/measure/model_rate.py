"""What a running loader spends on one sample, and the rate that this allows. Pure.

Counters at two moments in; milliseconds of CPU, a modelled rate and the CPUs needed out. It shows
where the time goes: verdicts come from the measured rate, never from this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from preflight.checks.dataloader.evidence import CpuBudget

# Above this the CPUs leave no room for the operating system and for samples of uneven cost.
_FULL = 0.95


@dataclass(frozen=True)
class Spent:
    """What one rank's loader has used so far: cumulative, so that two of them are subtracted.

    None: the host hides it.
    """

    samples: int
    getitem_wall_s: float
    getitem_cpu_s: float
    """CPU time of the workers' own threads inside the data set."""
    workers_cpu_s: float | None
    """CPU time of the worker processes, all of their threads."""
    workers_delay_s: float | None
    """How long the workers could have run and had no CPU."""
    main_cpu_s: float | None
    """CPU time of the process that takes the batches."""


@dataclass(frozen=True)
class Costs:
    """Seconds that one sample costs."""

    worker_cpu_s: float
    """CPU in a worker: fetch, decode, transform, collate."""
    main_cpu_s: float = 0.0
    wait_s: float = 0.0
    """Time in the data set with no use for a CPU: a read, a server, a lock."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds in all processes."""
        return self.worker_cpu_s + self.main_cpu_s


def budget(start: Spent, end: Spent) -> CpuBudget | None:
    """Milliseconds of CPU per sample between two moments; None where no sample was finished.

    Threads that the data set starts in a worker count as collate, since only the calling thread
    is timed inside the data set.
    """
    samples = end.samples - start.samples
    if samples <= 0:
        return None
    getitem_ms = 1e3 * (end.getitem_cpu_s - start.getitem_cpu_s) / samples
    workers_ms = _ms(start.workers_cpu_s, end.workers_cpu_s, samples)
    main_ms = _ms(start.main_cpu_s, end.main_cpu_s, samples)
    return CpuBudget(
        getitem_ms=round(getitem_ms, 4),
        # Two clocks: the kernel's may lie a tick behind the worker's own.
        collate_ms=None if workers_ms is None else round(max(0.0, workers_ms - getitem_ms), 4),
        main_ms=None if main_ms is None else round(main_ms, 4),
    )


def costs(start: Spent, end: Spent) -> Costs | None:
    """Seconds per sample between two moments; None without a sample or where CPU time is hidden.

    wait = wall - CPU - run delay inside the data set, at least 0. Where the run delay is hidden it
    counts as waiting.
    """
    samples = end.samples - start.samples
    if samples <= 0 or None in (
        start.workers_cpu_s, end.workers_cpu_s, start.main_cpu_s, end.main_cpu_s,
    ):  # fmt: skip
        return None
    wall_s = end.getitem_wall_s - start.getitem_wall_s
    cpu_s = end.getitem_cpu_s - start.getitem_cpu_s
    delay_s = (end.workers_delay_s or 0.0) - (start.workers_delay_s or 0.0)
    return Costs(
        worker_cpu_s=((end.workers_cpu_s or 0.0) - (start.workers_cpu_s or 0.0)) / samples,
        main_cpu_s=((end.main_cpu_s or 0.0) - (start.main_cpu_s or 0.0)) / samples,
        wait_s=max(0.0, wall_s - cpu_s - delay_s) / samples,
    )


def seconds_per_sample(spent: Costs, cpus: float, workers: int) -> float:
    """1 / S_model of one rank: S_model = min(N / (cw + cm), W / (wait + cw), 1 / cm).

    The CPUs are shared by all processes; a worker does one thing after the other; the main process
    is one thread. Within 2 % of loaders that are bound by CPU time or by waiting; too fast for
    samples of a few kB, whose cost is in the queues between the processes.

    Args:
        spent: what a sample costs.
        cpus: N, the CPUs that this rank has: the effective ones / ranks.
        workers: W.
    """
    return max(
        spent.cpu_s / cpus, (spent.wait_s + spent.worker_cpu_s) / workers, spent.main_cpu_s
    )  # fmt: skip


def cpus_needed(spent: Costs, demand_samples_per_s: float, ranks: int, host_cpus: float) -> int:
    """At least so many CPUs feed a node: ceil((D (cw + cm) + ranks x host_cpus) / 0.95).

    Args:
        spent: what a sample costs.
        demand_samples_per_s: of one rank; D is that of all ranks.
        ranks: training processes on the node.
        host_cpus: CPUs that the training process of one rank takes (consumer.host_cpus).
    """
    return max(1, math.ceil(ranks * (demand_samples_per_s * spent.cpu_s + host_cpus) / _FULL))


def _ms(start_s: float | None, end_s: float | None, samples: int) -> float | None:
    return None if start_s is None or end_s is None else 1e3 * (end_s - start_s) / samples
