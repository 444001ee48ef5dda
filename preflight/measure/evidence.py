"""What the workers did between two moments, as shares of their time. Pure.

Counters and looks in, the evidence out that the table of causes is held against.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from preflight.checks.dataloader.evidence import Evidence
from preflight.measure.model_rate import Spent

_WAITS = ("socket", "lock", "sleep", "poll", "pipe", "disk", "other")
# Of the looks at a waiting worker: with more of them hidden the rest says too little.
_MOST_HIDDEN = 0.5


@dataclass(frozen=True)
class Mark:
    """Cumulative counters of one rank's workers at one moment; None: the host hides it."""

    at_s: float
    spent: Spent
    inside_s: float
    """In the data set, calls that have not come back yet included."""
    collate_s: float
    """In collate, the same."""
    collate_cpu_s: float
    read_bytes: int | None
    disk_bytes: int | None
    major_faults: int | None


def evidence(
    start: Mark,
    end: Mark,
    workers: int,
    seen: Counter[tuple[str, str | None]],
    uninterruptible: int,
    cpu_weight: int | None,
    line: str | None,
) -> Evidence | None:
    """The shares of `workers` x the time between the two; None where no time passed.

    Args:
        start: the first moment.
        end: the second.
        workers: how many there are; the process itself where it loads without any.
        seen: looks at single workers, by where they were and what they were doing.
        uninterruptible: of them, those inside the data set and in the state D.
        cpu_weight: echoed.
        line: echoed.
    """
    dt_s = end.at_s - start.at_s
    if dt_s <= 0 or workers < 1:
        return None
    wall_s, looks = workers * dt_s, sum(seen.values())
    a, b = start.spent, end.spent
    samples = b.samples - a.samples
    called_s = b.getitem_wall_s - a.getitem_wall_s
    main = _less(a.main_cpu_s, b.main_cpu_s, dt_s)
    faults = _less(start.major_faults, end.major_faults, dt_s)
    return Evidence(
        getitem_share=_share(end.inside_s - start.inside_s, wall_s),
        getitem_cpu_share=(
            _share(b.getitem_cpu_s - a.getitem_cpu_s, called_s) if called_s > 0 else None
        ),
        collate_share=_share(end.collate_s - start.collate_s, wall_s),
        collate_cpu_share=_share(end.collate_cpu_s - start.collate_cpu_s, wall_s),
        worker_cpu_share=_less(a.workers_cpu_s, b.workers_cpu_s, wall_s),
        worker_delay_share=_less(a.workers_delay_s, b.workers_delay_s, wall_s),
        main_cpu_share=main,
        disk_wait_share=round(uninterruptible / looks, 4) if looks else None,
        waits=_waits(seen),
        looks=looks,
        read_bytes_per_sample=_less(start.read_bytes, end.read_bytes, samples),
        disk_bytes_per_sample=_less(start.disk_bytes, end.disk_bytes, samples),
        major_faults_per_s=faults,
        cpu_weight=cpu_weight,
        slow_line=line,
    )


def _waits(seen: Counter[tuple[str, str | None]]) -> dict[str, float]:
    looks = sum(seen.values())
    waiting = sum(times for (_, doing), times in seen.items() if doing != "running")
    hidden = sum(times for (_, doing), times in seen.items() if doing is None)
    if not looks or hidden > _MOST_HIDDEN * waiting:
        return {}
    shares = {doing: round(seen["getitem", doing] / looks, 4) for doing in _WAITS}
    idle = sum(
        times for (phase, doing), times in seen.items()
        if phase == "between" and doing != "running"
    )  # fmt: skip
    return {**shares, "work": round(idle / looks, 4)}


def _share(part_s: float, whole_s: float) -> float:
    """Between 0 and 1: the clocks of workers and ours are read one after the other."""
    return round(min(1.0, max(0.0, part_s / whole_s)), 4)


def _less(start: float | None, end: float | None, per: float) -> float | None:
    """What was added, per `per`; None where less is left: a worker's numbers end with it."""
    if start is None or end is None or end < start or per <= 0:
        return None
    return round((end - start) / per, 4)
