"""One setting of a loader for a moment: started, warmed up, measured, ended.

Samples are counted in the workers, block by block; what others took of the CPUs is taken off. It
always ends: a setting that gives nothing raises.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from preflight.checks.contract import Unit
from preflight.machine.load import LoadMeter
from preflight.measure.blocks import BlockMaker, Look
from preflight.measure.closing import end_workers, worker_pids
from preflight.measure.counters import Counters
from preflight.measure.drain import Drain
from preflight.measure.model_rate import Costs, Spent, costs
from preflight.measure.read_budget import ReadBudget
from preflight.measure.stage_rates import rate_of_blocks
from preflight.measure.stage_timing import StageFailed
from preflight.measure.stopping import FEWEST_BLOCKS, Block
from preflight.model import Rate

_START_S = 10.0
"""Until every worker has finished a sample: spawned ones import torch, which takes seconds."""
_START_SHARE = 0.5  # of the time left: a setting that is too slow must leave time for another
_SETTLE = 1 / 3  # of the trial's time: workers that start one after the other, batches ahead
_LONGEST = 2.0  # times the trial's time, where samples come slowly
_POLL_S = 0.02
_LAST_BATCH_S = 0.5
FULL = 0.95
"""Of the CPUs: more workers get no more out of them."""


@dataclass(frozen=True)
class Trial:
    """What a setting gave, of one rank while all do the same."""

    rate: Rate
    blocks: tuple[Block, ...]
    costs: Costs | None
    full: bool
    """All CPUs that this rank may use are used."""
    idle: float | None
    """Share of the workers' time in which they had nothing to do."""


def measure(
    unit: Unit,
    loader: DataLoader[Any],
    counters: Counters,
    burners: Sequence[int],
    budget: ReadBudget,
    until: float,
    most_batches_per_s: float | None,
) -> Trial:
    """Measure a loader that is not started yet, for `stats.stage_s` after its warm-up.

    This rank alone runs. Its rate while all do the same is the smaller of what was seen and of what
    the CPUs allow: the rank's CPUs / CPU seconds of a sample. What ranks share beside the CPUs is
    not in it. Call it in the main thread.

    Raises:
        StageFailed: too few samples, too late, or workers that cannot tell what they do.
        Exception: what the loader or a worker raised.
    """
    before, main = worker_pids(), os.getpid()

    def workers() -> list[int]:
        return sorted(worker_pids() - before)

    gc.collect()  # torch's iterators of loaders before: a worker that collects one complains of it
    drain = Drain(loader, most_batches_per_s)
    meter = LoadMeter(unit.machine, unit.machine.affinity(), lambda: [main, *workers(), *burners])
    try:
        _warm_up(unit, drain, counters, until)

        def spent() -> Spent:
            slots, now = counters.read(), workers()
            return Spent(
                samples=sum(slot.finished for slot in slots),
                getitem_wall_s=sum(slot.getitem_wall_ns for slot in slots) / 1e9,
                getitem_cpu_s=sum(slot.getitem_cpu_ns for slot in slots) / 1e9,
                workers_cpu_s=meter.cpu_s(now),
                workers_delay_s=meter.delay_s(now),
                main_cpu_s=meter.cpu_s([main]),
            )

        def look() -> Look:
            budget.look(workers())
            load, now = meter.read(time.monotonic()), spent()
            ends.append(now)
            return Look(now.samples, load)

        ends: list[Spent] = []
        blocks = _blocks(unit, drain, budget, look, loader.num_workers, until)
    finally:
        drain.stop()
        drain.thread.join(_LAST_BATCH_S)
        end_workers(workers())
    return _trial(unit, blocks, ends[0], ends[-1], loader.num_workers)


def _warm_up(unit: Unit, drain: Drain, counters: Counters, until: float) -> None:
    now = time.monotonic()
    until = now + min(_START_S, _START_SHARE * (until - now))
    while True:
        time.sleep(_POLL_S)
        if drain.error is not None:
            raise drain.error
        slots = counters.read()
        if all(slot.finished or slot.empty for slot in slots):
            time.sleep(_SETTLE * unit.job.stats.stage_s)
            return
        if drain.batches and all(slot.pid is None for slot in slots):
            raise StageFailed("the workers cannot tell what they have loaded")
        if time.monotonic() >= until:
            raise StageFailed("not every worker finished a sample in time")


def _blocks(
    unit: Unit,
    drain: Drain,
    budget: ReadBudget,
    look: Callable[[], Look],
    workers: int,
    until: float,
) -> list[Block]:
    stats, cpu = unit.job.stats, unit.facts.cpu
    maker = BlockMaker(
        cpus=cpu.effective, block_s=stats.stage_s / FEWEST_BLOCKS, cfs_period_s=cpu.period_s,
        workers=workers, main_pid=os.getpid(),
    )  # fmt: skip
    blocks: list[Block] = []
    until = min(until, time.monotonic() + _LONGEST * stats.stage_s)
    while True:
        block = maker.add(look())
        if block is not None:
            blocks.append(block)
        if drain.error is not None:
            raise drain.error
        if len(blocks) >= FEWEST_BLOCKS or budget.spent or time.monotonic() >= until:
            break
        time.sleep(stats.stage_s / FEWEST_BLOCKS)
    if not blocks:
        less = "before the run may read no more of the data path" if budget.spent else "in its time"
        raise StageFailed(f"too few samples {less}")
    return blocks


def _trial(unit: Unit, blocks: list[Block], start: Spent, end: Spent, workers: int) -> Trial:
    job = unit.job
    spent = costs(start, end)
    cpus, host = unit.facts.cpu.effective / job.ranks, job.consumer.host_cpus
    # The training process's own share; where there are too few CPUs the scheduler is fair.
    ours = max(cpus - host, cpus * workers / (workers + host))
    least_s = 0.0 if spent is None or job.ranks == 1 else spent.cpu_s / ours
    rate = rate_of_blocks(
        [max(block.x * (1 - block.f), least_s) for block in blocks], job.stats.alpha_pass
    )
    full = spent is not None and rate.value * spent.cpu_s >= FULL * ours
    return Trial(rate, tuple(blocks), spent, full, _idle(start, end, blocks, workers))


def _idle(start: Spent, end: Spent, blocks: list[Block], workers: int) -> float | None:
    samples = end.samples - start.samples
    if samples <= 0 or start.workers_cpu_s is None or end.workers_cpu_s is None:
        return None
    in_getitem_s = end.getitem_wall_s - start.getitem_wall_s
    getitem_cpu_s = end.getitem_cpu_s - start.getitem_cpu_s
    rest_s = max(0.0, end.workers_cpu_s - start.workers_cpu_s - getitem_cpu_s)
    seconds = samples * sum(block.dt_s for block in blocks) / sum(block.samples for block in blocks)
    return max(0.0, 1 - (in_getitem_s + rest_s) / (workers * seconds))
