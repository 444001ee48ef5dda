"""Do the recommended settings reach what the best of a grid reaches? Datasets of known cost.

The grid of workers x prefetch is run once. Its best three cells and the recommendation, which comes
from the product's own trials, are then measured again in turn, five times each.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from statistics import median

import torch
from torch.utils.data import DataLoader, Dataset

from bench.known_loader import Busy, Sleeping
from bench.known_rate import setup_of
from bench.table import Row, ratio_of_medians
from preflight import checks
from preflight.checks.contract import Unit
from preflight.machine.facts import gather
from preflight.machine.root import host
from preflight.measure.counters import Counters
from preflight.measure.counting import counted, worker_init
from preflight.measure.dataset import EndlessShuffle
from preflight.measure.loader import OpenLoader, opened
from preflight.measure.read_budget import ReadBudget
from preflight.measure.reopen import reopened
from preflight.measure.search import Setting
from preflight.measure.stage_timing import StageFailed
from preflight.measure.trial import Trial
from preflight.measure.trial import measure as measured
from preflight.measure.trials import AsItIs, what_if
from preflight.scratch import Scratch
from preflight.settings import SHIPPED, Request, resolve

_BOUND = 0.95
_TURNS, _BEST = 5, 3
_WORKERS, _PREFETCH = (1, 2, 4, 8, 16, 32), (2, 4)
_GRID_S, _TURN_S = 0.5, 0.8
_AS_IT_IS = Setting(2, 2)


class Mixed(Dataset[torch.Tensor]):
    """Waits, then computes, as for a remote sample that is decoded."""

    def __init__(self, wait_s: float, burn_s: float) -> None:
        self._wait, self._burn = Sleeping(wait_s), Busy(burn_s)

    def __len__(self) -> int:
        return len(self._wait)

    def __getitem__(self, index: int) -> torch.Tensor:
        self._wait[index]
        return self._burn[index]


_DATASETS: dict[str, Dataset[torch.Tensor]] = {
    "waits": Sleeping(0.02),
    "computes": Busy(0.004),
    "waits and computes": Mixed(0.010, 0.0033),
}


def measure(repeat: int) -> list[Row]:
    """One row for each Dataset."""
    unit = _unit()
    return [_compare(name, unit, _TURNS * repeat) for name in _DATASETS]


def _compare(name: str, unit: Unit, turns: int) -> Row:
    number = f"recommended settings / best of grid, {name}"
    loader = _loader(_DATASETS[name], unit)
    base = _measured(unit, loader, _AS_IT_IS, unit.job.stats.stage_s)
    now = AsItIs(
        opened=loader, blocks=base.blocks, costs=base.costs, first_batch_s=None, worker_gib=None,
        budget=ReadBudget(unit), pace_samples_per_s=None,
    )  # fmt: skip
    found, recommended = what_if(unit, now, time.monotonic() + unit.limits.what_if_s)
    if recommended is None:
        return Row(number, None, note=f"nothing recommended: {found.reason}")
    advised = Setting(recommended.num_workers, recommended.prefetch_factor)
    cells = [Setting(*cell) for cell in itertools.product(_WORKERS, _PREFETCH)]
    grid = {cell: _cell(unit, loader, cell) for cell in cells}
    best = sorted(grid, key=lambda setting: grid[setting])[-_BEST:]
    again: dict[Setting, list[float]] = {setting: [] for setting in (*best, advised)}
    for _ in range(turns):
        for setting, rates in again.items():
            rates.append(_measured(unit, loader, setting, _TURN_S).rate.value)
    top = max(best, key=lambda setting: median(again[setting]))
    note = (
        f"{_words(advised)} {median(again[advised]):,.0f} /s, grid {_words(top)} "
        f"{median(again[top]):,.0f} /s, {_words(_AS_IT_IS)} {base.rate.value:,.0f} /s; "
        f"{len(found.trials) - 1} trials"
    )
    return Row(number, ratio_of_medians(again[advised], again[top]), at_least=_BOUND, note=note)


def _words(setting: Setting) -> str:
    return f"W{setting.num_workers} P{setting.prefetch_factor}"


def _measured(unit: Unit, loader: OpenLoader, setting: Setting, seconds: float) -> Trial:
    stats = unit.job.stats.model_copy(update={"stage_s": seconds})
    unit = replace(unit, job=unit.job.model_copy(update={"stats": stats}))
    counters = Counters.create(setting.num_workers)
    again = reopened(loader, unit.job, 0, setting, counters, unit.job.seed)
    return measured(unit, again, counters, (), ReadBudget(unit), math.inf, None)


def _cell(unit: Unit, loader: OpenLoader, setting: Setting) -> float:
    try:
        return _measured(unit, loader, setting, _GRID_S).rate.value
    except StageFailed:  # too slow for a look: not among the best
        return 0.0


def _loader(dataset: Dataset[torch.Tensor], unit: Unit) -> OpenLoader:
    counters = Counters.create(_AS_IT_IS.num_workers)
    loader: DataLoader[torch.Tensor] = DataLoader(
        counted(dataset, counters),
        batch_size=unit.job.loader.batch_size,
        sampler=EndlessShuffle(len(dataset), unit.job.seed),  # type: ignore[arg-type]
        num_workers=_AS_IT_IS.num_workers,
        prefetch_factor=_AS_IT_IS.prefetch_factor,
        worker_init_fn=worker_init(counters),
    )
    return opened(loader, counters, kind="dataset")


def _unit() -> Unit:
    limits = {id: check.limits for id, check in checks.discover().items()}
    settings = resolve(Request(thresholds="cpu"), limits, SHIPPED)
    return Unit(
        subject="rank 0", machine=host(), limits=settings.limits["dataloader"],
        job=setup_of(_AS_IT_IS.num_workers).job, facts=gather(host(), {}), earlier={},
        scratch=Scratch("bench"),
    )  # fmt: skip
