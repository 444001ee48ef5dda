"""Does preflight see the rate that a hand-written loop gets? Same files, same transform, in turn.

The check gets a limit out of reach, no early end, and error probabilities so small that no eight
blocks can miss it; two windows without one of eight are longer than `_WINDOW_S`, so that is always
how long it measures. Its rate is 1 / mean(x) over all blocks: on a quiet machine the supply that it
reports, without what it corrects for neighbours. Where the machine's speed moves, 1 / mean(x) is
lower than samples / seconds by the square of the blocks' CV: that ratio is printed beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.command import environment, gate
from bench.table import Row, ratio_of_medians, spread
from preflight.data.generated import generate
from preflight.job import Sample

_TURNS = 6
_WINDOW_S = 5
_WORKERS = min(8, len(os.sched_getaffinity(0)))
_BATCH, _PREFETCH = 32, 2
_SAMPLE = Sample(codec="jpeg", encoded_bytes=110_000, shape=(3, 224, 224), dtype="uint8")
_NEVER = {
    "dataloader.min_samples_per_s": 1_000_000, "stats.hopeless_ratio": 0,
    "stats.alpha_pass": "1.0e-20", "stats.alpha_fail": "1.0e-20",
}  # fmt: skip
Blocks = Sequence[dict[str, Any]]
_PLAIN = Path(__file__).with_name("plain_loop.py")


def measure(repeat: int) -> list[Row]:
    """The ratio of medians, and both rates."""
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as folder:
        generate(_SAMPLE, seed=1, directory=folder)
        _plain(folder)  # reads the files once
        plain, turns = [], []
        for _ in range(_TURNS * repeat):
            plain.append(_plain(folder))
            turns.append(_preflight(folder))
    ours = [reported(blocks) for blocks in turns]
    setup = f"W {_WORKERS}, B {_BATCH}, P {_PREFETCH}, {_WINDOW_S} s, {len(ours)} turns each"
    return [
        Row("supply / plain loop, ratio of medians", ratio_of_medians(ours, plain),
            at_least=0.97, at_most=1.03, note=setup),
        Row("  the same by samples / seconds", ratio_of_medians([*map(counted, turns)], plain)),
        Row("  preflight's median", median(ours), "/s", note=spread(ours)),
        Row("  plain loop's median", median(plain), "/s", note=spread(plain)),
    ]  # fmt: skip


def reported(blocks: Blocks) -> float:
    """1 / mean seconds per sample over a reading's blocks, disturbed or not."""
    return 1 / fmean(block["dt_s"] / block["samples"] for block in blocks)


def counted(blocks: Blocks) -> float:
    """All samples over all seconds of a reading's blocks."""
    samples, seconds = (sum(block[key] for block in blocks) for key in ("samples", "dt_s"))
    return float(samples / seconds)


def _preflight(folder: str) -> Blocks:
    settings = {
        "loader.num_workers": _WORKERS, "loader.batch_size": _BATCH,
        "loader.prefetch_factor": _PREFETCH, "stats.max_s": _WINDOW_S, **_NEVER,
    }  # fmt: skip
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run = gate("--check", "dataloader", "--data", folder, *options)
    window_s = float(run.loader["reading"]["window_s"])
    if window_s < _WINDOW_S:
        reason = run.loader["reason"] or run.verdict
        raise RuntimeError(f"the window ended after {window_s:.1f} s: {reason}")
    blocks: Blocks = run.loader["reading"]["blocks"]
    return blocks


def _plain(folder: str) -> float:
    numbers = [str(number) for number in (_WORKERS, _BATCH, _PREFETCH, _WINDOW_S)]
    ran = subprocess.run(
        [sys.executable, str(_PLAIN), folder, *numbers],
        stdout=subprocess.PIPE, text=True, check=True, env=environment(), timeout=120,
    )  # fmt: skip
    return float(ran.stdout)
