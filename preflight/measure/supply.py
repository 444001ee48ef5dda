"""Runs the job's DataLoader and watches how fast samples are finished, until the rate is clear.

A thread drains the loader; the main thread looks every quarter of a second at what the workers
have finished and at who used the CPUs. It only measures: what the rate is worth is judged
elsewhere. Importing this file imports torch.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from preflight.checks.contract import Unit
from preflight.data.source import Source
from preflight.machine.cpu import throttling
from preflight.machine.load import LoadMeter
from preflight.measure.blocks import Look
from preflight.measure.burner import burning
from preflight.measure.counters import Counters
from preflight.measure.drain import Drain, build_loader
from preflight.measure.samples import find
from preflight.measure.stopping import Decision
from preflight.measure.window import Progress, Window

_EMIT_EVERY_S = 1.0
_TIMED_OUT = "DataLoader timed out"

Fields = dict[str, Any]
Emit = Callable[[Fields], None]


def measure(unit: Unit, limit_samples_per_s: float, emit: Emit) -> Fields:
    """The fields of the check's reading; `emit` gets them while the run goes on.

    Raises:
        Exception: whatever the loader or one of its workers raised.
    """
    unit.ready()
    found = find(unit)
    if found.source is None:
        return {"data_state": found.state}
    with burning(unit.job.consumer.host_cpus) as burners:
        watch = _Watch(unit, limit_samples_per_s, emit, found.source, burners)
        return watch.until_clear()


class _Watch:
    """One run of a loader: what it reads off the workers and the machine, look by look."""

    def __init__(
        self,
        unit: Unit,
        limit_samples_per_s: float,
        emit: Emit,
        source: Source,
        burners: list[int],
    ) -> None:
        self._unit, self._emit, self._burners = unit, emit, burners
        self._job = unit.job
        self._counters = Counters.create(unit.job.num_workers)
        self._meter = LoadMeter(unit.machine, unit.machine.affinity(), self._pids)
        self._window = Window(unit.job, unit.facts.cpu, limit_samples_per_s, os.getpid())
        pin_memory = unit.job.loader.pin_memory and bool(unit.facts.gpus)
        unit.progress(f"starting {unit.job.num_workers} workers")
        # Workers hand tensors over through sockets in it; without one the loader waits for ever.
        tempfile.gettempdir()
        self._files = len(source)
        self._loader_at = time.monotonic()
        loader = build_loader(unit.job, source, self._counters, pin_memory)
        # iter() in the main thread: only here torch can install its SIGCHLD handler, which tells
        # a worker's death at once.
        self._drain = Drain(iter(loader))
        self._throttled = throttling(unit.machine)

    def until_clear(self) -> Fields:
        """Look every block until there is a verdict."""
        emitted = self._loader_at
        while True:
            time.sleep(self._job.stats.block_s)
            progress = self._progress()
            no_batch = self._window.no_batch(progress)
            error = self._drain.error
            if error is not None:
                if progress.batches or not str(error).startswith(_TIMED_OUT):
                    raise error
                if progress.all_started_at is None or not self._window.undisturbed():
                    raise error
                no_batch = True
            decision = None if no_batch else self._window.add(progress)
            if no_batch or decision is not None:
                self._drain.stop()
                return {**self._fields(decision), "no_batch": no_batch}
            if progress.look.load.at_s - emitted >= _EMIT_EVERY_S:
                emitted = progress.look.load.at_s
                self._emit(self._fields(None))
                self._unit.progress(self._words(progress))

    def _progress(self) -> Progress:
        slots, batches = self._counters.read(), self._drain.batches
        hidden = batches > 0 and all(slot.pid is None for slot in slots)
        if hidden:  # workers that may not open our memory: go by the batches that arrived
            finished = batches * self._job.loader.batch_size
            starts: list[float | None] = [self._loader_at]
            warm = batches >= 2 * self._job.num_workers
        else:
            finished = sum(slot.finished for slot in slots)
            starts = [None if s.started_ns is None else s.started_ns / 1e9 for s in slots]
            warm = all(slot.finished for slot in slots)
        return Progress(
            look=Look(finished, self._meter.read(time.monotonic())),
            batches=batches,
            all_started_at=None if None in starts else max(s for s in starts if s is not None),
            all_finished_one=warm,
        )

    def _pids(self) -> list[int]:
        workers = [slot.pid for slot in self._counters.read() if slot.pid is not None]
        return [os.getpid(), *workers, *self._burners]

    def _words(self, progress: Progress) -> str:
        if not self._window.test.blocks:
            return f"warming up, {progress.look.finished:,} samples so far"
        last = self._window.test.blocks[-1]
        return f"measuring, {last.samples / last.dt_s:,.0f} samples/s in the last block"

    def _fields(self, decision: Decision | None) -> Fields:
        slots = self._counters.read()
        corrupt = sum(slot.corrupt for slot in slots)
        finished = sum(slot.finished for slot in slots)
        names = [name for slot in slots for name in slot.corrupt_names]
        first = self._drain.first_batch_at
        return {
            **self._window.fields(decision),
            "files": self._files,
            "first_batch_s": None if first is None else round(first - self._loader_at, 3),
            "corrupt_samples": corrupt,
            "corrupt_percent": round(100 * corrupt / max(1, corrupt + finished), 3),
            "corrupt_files": tuple(dict.fromkeys(names)),
            "throttled_percent": self._throttled_percent(),
            "load_1m": os.getloadavg()[0],
        }

    def _throttled_percent(self) -> float | None:
        now = throttling(self._unit.machine)
        if now is None or self._throttled is None:
            return None
        periods = now.nr_periods - self._throttled.nr_periods
        throttled = now.nr_throttled - self._throttled.nr_throttled
        return round(100 * throttled / periods, 1) if periods > 0 else 0.0
