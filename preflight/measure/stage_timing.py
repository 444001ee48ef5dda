"""Times a piece of work over and over, block by block, in a thread that may be left behind.

Wall time, CPU time and the time in which the thread found no CPU. It knows no stage and judges
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from preflight.job import Stats
from preflight.machine.load import parse_schedstat
from preflight.machine.root import Root
from preflight.measure.model_rate import Costs
from preflight.measure.stage_rates import BLOCKS

T = TypeVar("T")

# Times the stage's time: one slow sample may outlast it, a hang may not outlast the check.
_LONGEST = 5
_WARM_UP = 0.5  # the same, at most


class StageFailed(Exception):
    """A stage could not be measured; the text says why."""


def within(stats: Stats, work: Callable[[], T]) -> T:
    """Do the work in a thread, which is left behind when it hangs. Raises what the work raised."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_LONGEST * stats.stage_s)
    if errors:
        raise errors[0]
    if not results:
        raise StageFailed(f"it did not end in {_LONGEST * stats.stage_s:g} s")
    return results[0]


@dataclass(frozen=True)
class Block:
    """One block of samples in one thread."""

    samples: int
    wall_s: float
    cpu_s: float
    delay_s: float = 0.0

    def costs(self) -> Costs:
        """Of one sample; what is neither CPU time nor run delay is waiting."""
        wait_s = max(0.0, self.wall_s - self.cpu_s - self.delay_s)
        return Costs(worker_cpu_s=self.cpu_s / self.samples, wait_s=wait_s / self.samples)


def timed(
    load: Callable[[], int],
    stats: Stats,
    cpu: Callable[[], float],
    machine: Root | None = None,
    warm_up: int = 1,
) -> list[Block]:
    """Blocks of samples until the stage's time is up; at least one.

    Args:
        load: loads the next samples and says how many they were.
        stats: how long.
        cpu: the clock of CPU time, of this thread or of the process.
        machine: asked for this thread's run delay; None: it is not of interest, and counts as 0.
        warm_up: loads before the clock starts: imports, tables and buffers are no sample's cost.
    """
    until = time.monotonic() + _WARM_UP * stats.stage_s
    for _ in range(warm_up):
        load()
        if time.monotonic() > until:
            break
    blocks: list[Block] = []
    until = time.monotonic() + stats.stage_s
    while not blocks or time.monotonic() < until:
        began_s, used_s, delay_s = time.monotonic(), cpu(), _delay_s(machine)
        samples = load()
        while time.monotonic() - began_s < stats.stage_s / BLOCKS:
            samples += load()
        wall_s, cpu_s = time.monotonic() - began_s, cpu() - used_s
        blocks.append(Block(samples, wall_s, cpu_s, _delay_s(machine) - delay_s))
    return blocks


def _delay_s(machine: Root | None) -> float:
    """How long this thread could have run and had no CPU; 0 where that is hidden."""
    if machine is None:
        return 0.0
    times = parse_schedstat(machine.read_text("/proc/thread-self/schedstat"))
    return 0.0 if times is None else times[1]
