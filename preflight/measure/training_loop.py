"""A training loop on a GPU that is not there: real batches, and steps that only take their time.

The device runs one step after the other; the host may be one step ahead of it, as an asynchronous
launch queue lets it, or waits for each step to end (MLPerf Storage's loop). The device is a line of
start and end times, so a step is as exact as the clock, whatever the host's sleep rounds to.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

# A step that waited less did not wait for data: the host was late by its own scheduling.
LEAST_STALL_S = 0.001
LEAST_STALL_SHARE = 0.1  # of a step


class Step(NamedTuple):
    """One step of the device."""

    idle_s: float
    """How long it had nothing to do before."""
    start: float
    end: float


@dataclass(frozen=True)
class Stalls:
    """Waits for data in a stretch of time."""

    steps: int
    stalled_percent: float
    longest_s: float


class TrainingLoop:
    """Takes a batch for every step. All may be read while it runs."""

    def __init__(
        self,
        loader: Iterable[Any],
        *,
        batch_size: int,
        step_s: float,
        jitter_percent: float = 0.0,
        sync_every_step: bool = False,
        seed: int = 0,
    ) -> None:
        """`jitter_percent` is the standard deviation of a step's length, which stays positive."""
        self.batches = 0
        self.first_batch_at: float | None = None
        self.error: BaseException | None = None
        self.sync_every_step = sync_every_step
        self.steps: list[Step] = []
        self._loader = loader
        self._batch_size, self._step_s, self._jitter = batch_size, step_s, jitter_percent / 100
        self._random = random.Random(seed)
        self._ended_steps = 0
        self._stopped = threading.Event()
        # iter() in the main thread, as in `drain`.
        self.iterator = iter(loader)
        self.thread = threading.Thread(target=self._run, args=(self.iterator,), daemon=True)
        self.thread.start()

    def consumed(self) -> int:
        """Samples of the steps that have ended, and of the running one as far as it is."""
        now, done = time.monotonic(), 0.0
        for step in self.steps[self._ended_steps :]:
            if step.end <= now:
                self._ended_steps += 1
            elif step.start < now:
                done = (now - step.start) / (step.end - step.start)
        return int((self._ended_steps + done) * self._batch_size)

    def stop(self) -> None:
        """Take no further batch; does not wait for the one that may never come."""
        self._stopped.set()

    def busy_share(self, since: float, until: float) -> float:
        """The share of a stretch of time in which the device ran."""
        inside = (min(step.end, until) - max(step.start, since) for step in self.steps)
        return sum(part for part in inside if part > 0) / (until - since)

    def stalls(self, since: float) -> Stalls:
        """Which of the steps that started since then had to wait for their data."""
        steps = [step for step in self.steps if step.start >= since]
        least_s = max(LEAST_STALL_S, LEAST_STALL_SHARE * self._step_s)
        stalled = [step.idle_s for step in steps if step.idle_s > least_s]
        percent = 100 * len(stalled) / len(steps) if steps else 0.0
        return Stalls(len(steps), percent, max(stalled, default=0.0))

    def _run(self, batches: Iterator[Any]) -> None:
        try:
            while not self._stopped.is_set():
                before = self.batches
                for _ in batches:
                    if not self._launch():
                        return
                if self.batches == before:
                    raise ValueError("an epoch of the loader gave no batch")
                batches = iter(self._loader)
        except BaseException as error:
            self.error = error

    def _launch(self) -> bool:
        """Give the device its next step; False when the loop is to end."""
        last = self.steps[-1] if self.steps else None
        if last is not None and self._wait(last.start):  # its queue holds one step that waits
            return False
        now = time.monotonic()
        if self.first_batch_at is None:
            self.first_batch_at = now
        self.batches += 1
        start = now if last is None else max(now, last.end)
        length_s = self._step_s
        if self._jitter:
            length_s *= max(0.1, self._random.gauss(1.0, self._jitter))
        self.steps.append(Step(start - last.end if last else 0.0, start, start + length_s))
        return not (
            self._wait(start + length_s) if self.sync_every_step else self._stopped.is_set()
        )

    def _wait(self, until: float) -> bool:
        """Sleep; whether the loop was told to end."""
        return self._stopped.wait(max(0.0, until - time.monotonic()))
