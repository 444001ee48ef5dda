"""How fast each stage of the feed is alone, for a reader who asks which one to speed up.

One rank measures, in turn, when all loaders have ended. A rate is what one rank would get while all
ranks do the same, worked out from the CPU time of a sample where they share the CPUs. The slowest
stage's rate is higher than the loader's: stages run one after another. Nothing here judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from preflight.measure.stage_rates import part_of, rate_of_copies
from preflight.measure.stage_timing import StageFailed
from preflight.model import Rate, Stage

_AT_THE_PACE = 0.95
# What the storage check calls the state of the cache, in words for a table.
_CACHE = {
    "cold": "first touch",
    "cached": "page cache",
    "memory": "memory",
    "unknown": "first touch or cache: unknown",
    None: None,
}


@dataclass(frozen=True)
class Share:
    """What one rank has of the node."""

    effective_cpus: float
    ranks: int
    workers: int
    """Of one rank's loader; one where it loads in the main process."""

    @property
    def cpus(self) -> float:
        """CPUs of one rank while all ranks use theirs."""
        return self.effective_cpus / self.ranks


class Tried(NamedTuple):
    """One stage, or why there is none."""

    name: str
    stage: Stage | None
    reason: str | None


def one(item: Any) -> int:
    """An item of a data set is a sample."""
    return 1


def tried(name: str, measure: Callable[[], Stage | None]) -> Tried:
    """The stage, or in one line what kept it from being measured; the others go on."""
    try:
        stage = measure()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = lines[-1] if lines else "no reason given"  # of a worker's traceback: the error
        kind = "" if isinstance(error, StageFailed) else f"{type(error).__name__}: "
        return Tried(name, None, f"{kind}{text}"[:300])
    return Tried(name, stage, None if stage is not None else "does not apply here")


def fetch(storage: Mapping[str, Any] | None, ranks: int) -> Stage | None:
    """First reads of the data path, from what the storage check has measured; None without it.

    Its readers are those of all ranks, so that a rank has its part of their rate.

    Args:
        storage: the check's reading, as the report has it.
        ranks: training processes on the node.

    Raises:
        StageFailed: the reads were held to a pace, so that they say nothing of what is possible.
    """
    measured = (storage or {}).get("first_touch_samples_per_s")
    if storage is None or measured is None:
        return None
    rate, pace = Rate.model_validate(measured), storage.get("paced_samples_per_s")
    if pace is not None and rate.value >= _AT_THE_PACE * pace:
        raise StageFailed(
            f"the reads were held to {pace:,.0f}/s, to spare the file server: no slower than that"
        )
    return Stage(
        name="fetch",
        samples_per_s=part_of(rate, ranks),
        cpu_ms_per_sample=storage.get("cpu_ms_per_sample"),
        note=_CACHE[storage.get("cache_state")],
    )


def copy(readings: Any, subject: str | None, sample_bytes: int) -> Stage | None:
    """The pinned copy to this rank's GPU, from what pinned_copy has measured; None without it.

    One GPU at a time was measured there: what GPUs share (a PCIe switch, host memory) is not in it.

    Args:
        readings: of the check, as the report has them: one object, or one for each GPU.
        subject: the GPU's name there.
        sample_bytes: of one sample as a tensor.
    """
    each = readings if isinstance(readings, list) else [readings]
    for reading in each:
        if reading and reading.get("subject") == subject and reading.get("h2d_gb_per_s"):
            copies = Rate.model_validate(reading["h2d_gb_per_s"])
            rate = rate_of_copies(copies, sample_bytes)
            return Stage(name="copy", samples_per_s=rate, note=f"{copies.value:.1f} GB/s")
    return None


def cpu_note(cpu_s: float) -> str:
    """CPU seconds of a sample in words."""
    return f"{1e3 * cpu_s:.3g} ms of CPU a sample"
