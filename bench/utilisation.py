"""Does a loop feed the GPU as well as supply / demand says? Twelve loops of known cost.

A Dataset's samples cost a fixed sleep or fixed CPU seconds. Its supply is measured as `dataloader`
does, before and after the loops that train on it as `feed` does, at three demands.
"""

from __future__ import annotations

import os
from dataclasses import replace
from statistics import fmean, median

from torch.utils.data import Dataset

from bench.known_loader import Busy, Sleeping
from bench.known_rate import setup_of
from bench.table import Row
from preflight import checks
from preflight.checks.contract import Unit
from preflight.checks.feed.prediction import predicted
from preflight.machine.facts import gather
from preflight.machine.root import host
from preflight.measure import feeding, supply
from preflight.measure.closing import end_workers, worker_pids
from preflight.scratch import Scratch
from preflight.settings import SHIPPED, Request, resolve

_BOUND_POINTS = 3.0
_COST_S = 0.004
_RATIOS = (0.5, 0.8, 1.3)  # supply / demand
_WORKERS = (1, 2)
_KINDS = {"sleep": Sleeping, "cpu": Busy}
_KIND = "BENCH_DATASET"
_ANY = 1e-3  # a limit that every rate reaches: it is the rate that is wanted, not a verdict


def dataset() -> Dataset[object]:
    """What the loader loads; `_KIND` says which."""
    return _KINDS[os.environ[_KIND]](_COST_S)


def measure(repeat: int) -> list[Row]:
    """How far the prediction was off, in points of utilisation."""
    off: list[float] = []
    notes: list[str] = []
    for kind in _KINDS:
        os.environ[_KIND] = kind
        for workers in _WORKERS:
            for _ in range(repeat):
                for ratio, wanted, got in _loops(workers):
                    off.append(abs(wanted - got))
                    notes.append(f"{kind} W{workers} S/D {ratio:g}: {wanted:.0f}/{got:.0f}")
    return [
        Row("utilisation predicted - measured, worst", max(off), " points",
            at_most=_BOUND_POINTS, note=f"{len(off)} loops, median {median(off):.1f}"),
        Row("  predicted/measured %", median(off), " points", note=", ".join(notes)),
    ]  # fmt: skip


def _loops(workers: int) -> list[tuple[float, float, float]]:
    """(supply / demand, percent predicted, percent measured) of one loader."""
    unit = _unit(workers)
    before = _supply(unit)
    used = []
    for ratio in _RATIOS:
        demand = before / ratio
        limits = unit.limits.model_copy(update={"demand_samples_per_s": demand})
        fields = feeding.measure(replace(unit, limits=limits), _ANY, before, lambda fields: None)
        rate = fields["supply_samples_per_s"].value
        used.append((ratio, demand, 100 * min(1.0, rate / demand)))
    rate = {"value": fmean((before, _supply(unit)))}
    ahead = workers * unit.job.loader.prefetch_factor
    return [
        (ratio, predicted(rate, demand, ahead, 0.0)["predicted_utilisation_percent"] or 0.0, got)
        for ratio, demand, got in used
    ]


def _supply(unit: Unit) -> float:
    loader = replace(unit, limits=_limits()["dataloader"])
    fields = supply.measure(loader, _ANY, lambda fields: None)
    end_workers(worker_pids())  # the command's measuring process would end here
    return float(fields["supply_samples_per_s"].value)


def _unit(workers: int) -> Unit:
    job = setup_of(workers).job.model_copy(update={"dataset": "bench.utilisation:dataset"})
    only_the_loop = {"serial_s": 0.0, "max_epoch_s": 0.0}
    return Unit(
        subject="rank 0", machine=host(), limits=_limits()["feed"].model_copy(update=only_the_loop),
        job=job, facts=gather(host(), os.environ), earlier={}, scratch=Scratch("bench"),
    )  # fmt: skip


def _limits() -> dict[str, object]:
    known = {id: check.limits for id, check in checks.discover().items()}
    return dict(resolve(Request(thresholds="cpu"), known, SHIPPED).limits)
