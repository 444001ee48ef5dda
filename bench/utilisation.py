"""Does a loop feed the GPU as well as supply / demand says? Twelve loops of known cost.

Each is one run of the command with a Dataset whose samples cost a fixed sleep or fixed CPU seconds:
`dataloader` measures the supply and predicts, `feed` then trains on the same loader and measures.
"""

from __future__ import annotations

import itertools
import os
from statistics import median

from torch.utils.data import Dataset

from bench.command import gate
from bench.known_loader import Busy, Sleeping
from bench.table import Row

_BOUND_POINTS = 3.0
_COST_S = 0.004
_BATCH = 8
_RATIOS = (0.5, 0.8, 1.3)  # supply / demand, of the cost that is known
_WORKERS = (1, 2)
_KINDS = {"sleep": Sleeping, "cpu": Busy}
_KIND = "BENCH_DATASET"


def dataset() -> Dataset[object]:
    """What `--dataset bench.utilisation:dataset` loads."""
    return _KINDS[os.environ[_KIND]](_COST_S)


def measure(repeat: int) -> list[Row]:
    """How far the prediction was off, in points of utilisation."""
    off, notes = [], []
    for _ in range(repeat):
        for kind, workers, ratio in itertools.product(_KINDS, _WORKERS, _RATIOS):
            predicted, measured = _one(kind, workers, ratio)
            off.append(abs(predicted - measured))
            notes.append(f"{kind} W{workers} {ratio:g}: {predicted:.0f}/{measured:.0f}")
    return [
        Row("utilisation predicted - measured, worst of 12", max(off), " points",
            at_most=_BOUND_POINTS, note=f"median {median(off):.1f}"),
        Row("  predicted/measured %", float(len(off)), " loops", note=", ".join(notes)),
    ]  # fmt: skip


def _one(kind: str, workers: int, ratio: float) -> tuple[float, float]:
    """Percent predicted, percent measured."""
    demand = workers / _COST_S / ratio
    settings = {
        "loader.num_workers": workers, "loader.batch_size": _BATCH, "feed.serial_s": 0,
        "feed.max_epoch_s": 0, "dataloader.demand_samples_per_s": demand,
        # Limits that nothing misses: it is the rates that are wanted, not a verdict.
        "dataloader.min_feed_ratio": 0.01, "feed.min_utilisation_percent": 1,
    }  # fmt: skip
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    dataset = ("--dataset", "bench.utilisation:dataset")
    ran = gate("--check", "feed", *dataset, *options, variables={_KIND: kind})
    (result,) = (each for each in ran.report["results"] if each["check"] == "feed")
    if result["reading"] is None or result["reading"]["measured_utilisation_percent"] is None:
        raise RuntimeError(f"{kind}, {workers} workers, {ratio:g}: {result['reason']}")
    reading = result["reading"]
    return (
        float(reading["predicted_utilisation_percent"]),
        float(reading["measured_utilisation_percent"]),
    )
