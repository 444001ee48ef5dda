"""What a host-only run (`preflight run --thresholds cpu`) costs: time, time lost, memory."""

from __future__ import annotations

from bench.command import gate
from bench.table import Row

_RUNS = 2


def measure(repeat: int) -> list[Row]:
    """The slowest and largest of a few runs."""
    runs = [gate() for _ in range(_RUNS * repeat)]
    verdicts = ", ".join(sorted({run.verdict for run in runs}))
    return [
        Row("host-only run: wall time", max(run.wall_s for run in runs), "s", at_most=30,
            note=f"highest of {len(runs)}; supply: {verdicts}"),
        Row("host-only run: outside window and warm-up", max(run.outside_s for run in runs), "s",
            at_most=5, note="start of Python and torch, 64 images, workers, shm, ends"),
        Row("host-only run: parent's peak memory", max(run.peak_mb for run in runs), "MB",
            at_most=120, note="VmHWM, 10^6 bytes"),
    ]  # fmt: skip
