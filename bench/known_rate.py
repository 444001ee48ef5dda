"""Verdicts on loaders of known rate, with the limit 15 % under and over it: how many are wrong?

One loader runs through: quiet reference, quiet recording, reference, recording beside neighbours,
reference. The true rate of a recording is the mean of the references around it. Where these were
disturbed or disagree the recording says nothing and counts as void; one of a loader is made again.
The many starts over each recording are those of `bench.replay`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from bench.neighbour import neighbours
from bench.replay import OVER, UNDER, Setup, Tally, replay, truth
from bench.table import Row
from preflight import checks
from preflight.machine.facts import gather
from preflight.machine.root import host
from preflight.plan import make_job
from preflight.settings import SHIPPED, Request, resolve

if TYPE_CHECKING:
    from bench.known_loader import Recorder

_REFERENCE_S = 6.0
# Each start needs 21.5 s of record. Quiet starts are much alike, disturbed ones are not.
_QUIET_S, _DISTURBED_S = 29.0, 42.0
_SPARE = 1
_CPUS = len(os.sched_getaffinity(0))
_BATCH = 16
_WORKERS = min(8, _CPUS)
_SLEEP_S, _BURN_S = 0.004, 0.004


@dataclass
class Cell:
    """One loader, quiet or beside neighbours: how to record it, and what came of it."""

    beside: Callable[[], AbstractContextManager[None]]
    seconds: float
    tally: Tally = field(default_factory=Tally)
    most_undecided_percent: float = 1.0
    truths: list[float] = field(default_factory=list)
    """By recording that counts."""
    void: int = 0


def measure(repeat: int) -> list[Row]:
    """Two rows for each loader, quiet and beside neighbours; `repeat` starts each loader anew."""
    from bench.known_loader import Busy, Recorder, Sleeping

    rows = []
    setup = setup_of(_WORKERS)
    for name, dataset in (("sleeping", Sleeping(_SLEEP_S)), ("CPU-bound", Busy(_BURN_S))):
        quiet = Cell(nullcontext, _QUIET_S)
        disturbed = Cell(lambda: neighbours(_CPUS), _DISTURBED_S, most_undecided_percent=5.0)
        for _ in range(repeat):
            recorder = Recorder(dataset, setup)
            try:
                recorder.settle()
                _record(recorder, setup, (quiet, disturbed))
            finally:
                recorder.close()
        for how, cell in (("quiet", quiet), ("neighbours", disturbed)):
            rows += [
                row(f"{name} loader, {how}: wrong", cell, setup.job.stats.block_s),
                undecided(f"{name} loader, {how}: undecided", cell),
            ]
    return rows


def setup_of(workers: int) -> Setup:
    """The cpu thresholds' job on this machine with so many workers."""
    sets = (f"loader.num_workers={workers}", f"loader.batch_size={_BATCH}")
    limits = {id: check.limits for id, check in checks.discover().items()}
    settings = resolve(Request(thresholds="cpu", set_options=sets), limits, SHIPPED)
    facts = gather(host(), os.environ)
    job = make_job(
        sample=settings.sample, loader=settings.loader, stats=settings.stats,
        consumer=settings.consumer, workload=None, facts=facts, data=None, data_state=None,
        gpu_sharing=settings.expect.gpu_sharing, seed=1, max_read_gib=settings.run.max_read_gib,
        pace_ratio=settings.run.pace_ratio,
    )  # fmt: skip
    return Setup(job, facts.cpu, os.getpid())


def row(number: str, cell: Cell, block_s: float) -> Row:
    """How many verdicts were wrong, and what the others were."""
    void = f"; {cell.void} recordings void" if cell.void else ""
    if not cell.truths:
        return Row(number, None, at_most=0, note=f"no quiet reference{void}")
    under, over = (
        ", ".join(f"{verdict} {count}" for verdict, count in counter.most_common())
        for counter in (cell.tally.verdicts[UNDER], cell.tally.verdicts[OVER])
    )
    seconds = f"{median(cell.tally.blocks) * block_s:.1f}" if cell.tally.blocks else "-"
    note = (
        f"limit -15 %: {under}; +15 %: {over}; median {seconds} s; "
        f"true rate {median(cell.truths):,.4g} /s{void}"
    )
    return Row(number, cell.tally.wrong(), f"of {cell.tally.starts()}", at_most=0, note=note)


def undecided(number: str, cell: Cell) -> Row:
    """How many verdicts were none, in percent."""
    starts, most = cell.tally.starts(), cell.most_undecided_percent
    if not starts:
        return Row(number, None, "%", at_most=most, note="no quiet reference")
    return Row(number, 100 * cell.tally.undecided() / starts, "%", at_most=most)


def _record(recorder: Recorder, setup: Setup, cells: Sequence[Cell]) -> None:
    spare, reference = _SPARE, recorder.record(_REFERENCE_S)
    for cell in cells:
        while True:
            with cell.beside():
                moments = recorder.record(cell.seconds)
            before, reference = reference, recorder.record(_REFERENCE_S)
            true_rate = truth(before, reference, setup)
            if true_rate is not None:
                cell.truths.append(true_rate)
                replay(moments, setup, true_rate, cell.tally)
                break
            cell.void += 1
            if not spare:
                break
            spare -= 1
