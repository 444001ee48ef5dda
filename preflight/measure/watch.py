"""Watches a loader at work, look by look, until its rate is clear; then goes on for the others.

The main thread looks every quarter of a second at what the workers have finished and at who used
the CPUs, while the consumer's thread takes batches. Ranks load at once: whoever knows its rate goes
on loading until all know theirs, since a rank alone would find the CPUs idle. It only measures.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from preflight.checks.contract import Failed, Unavailable, Unit
from preflight.machine.cpu import throttling
from preflight.machine.load import LoadMeter
from preflight.measure.blocks import Look
from preflight.measure.loader import OpenLoader
from preflight.measure.model_rate import Costs, Spent, budget, costs
from preflight.measure.read_budget import ReadBudget
from preflight.measure.silence import Silence
from preflight.measure.stage_rates import rate_of_blocks
from preflight.measure.stopping import FEWEST_BLOCKS, Decision
from preflight.measure.window import Progress, Window
from preflight.measure.witness import Witness
from preflight.model import Rate
from preflight.roster import Roster, State

_EMIT_EVERY_S = 1.0
_TIMED_OUT = "DataLoader timed out"
_WORKER_ENDED = "DataLoader worker (pid"
# Of the check's time limit, which then still has to hold the stages and the end of the workers.
_WAITING_SHARE = 0.6
_GONE_LIMIT_S = 5.0
_POLL_S = 0.05

Fields = dict[str, Any]
Emit = Callable[[Fields], None]


class Consumer(Protocol):
    """Who takes the batches, in a thread of its own. All may be read while it runs."""

    batches: int
    first_batch_at: float | None
    error: BaseException | None

    def consumed(self) -> int | None:
        """Samples used up so far, where they are to be counted and not those of the workers."""

    thread: threading.Thread

    def stop(self) -> None:
        """Take no further batch; does not wait for the one that may never come."""


class Watch:
    """One run of one rank's loader."""

    def __init__(
        self,
        unit: Unit,
        limit_samples_per_s: float,
        emit: Emit,
        opened: OpenLoader,
        burners: list[int],
    ) -> None:
        self._unit, self._emit, self._burners = unit, emit, burners
        self._silence = Silence(opened)
        self._counters, self._batch_size = opened.counters, opened.batch_size
        self._workers = max(1, opened.workers)
        self._stats = unit.job.stats
        self._roster = unit.roster or Roster.alone()
        self._state = State.STARTING
        self._meter = LoadMeter(
            unit.machine, unit.machine.affinity(), self._pids, siblings=self._roster.pids
        )
        # Batches of unknown size: how far it is ahead cannot be known, so it never looks hopeless.
        in_flight = opened.in_flight()
        self._window = Window(
            unit.job.stats, unit.facts.cpu, limit_samples_per_s, os.getpid(),
            workers=self._workers, in_flight=math.inf if in_flight is None else in_flight,
        )  # fmt: skip
        self._began = time.monotonic()
        self._throttled = throttling(unit.machine)
        self.budget = ReadBudget(unit)
        self._opened: Spent | None = None
        self._witness = Witness(unit.machine, opened.counters, unit.facts.cpu.weight, self._workers)
        """Where the evidence begins: when all had started, and anew when warm-up was over."""
        self.opened_at_s = self._began
        """When warm-up was over, by the monotonic clock; before that, when it all began."""
        self._consumer: Consumer

    def until_clear(self, consumer: Consumer) -> Fields:
        """Look every block until there is a verdict; the fields of the reading.

        Raises:
            Failed: the loader gives nothing, or one of its workers ended.
            Exception: whatever the loader or one of its workers raised.
        """
        self._consumer = consumer
        try:
            return self._until_clear(consumer)
        except Exception as error:
            with suppress(Exception):  # what was seen until then stands
                self._emit({**self._fields(None), "no_batch": str(error).startswith("NoBatch")})
            if str(error).startswith(_WORKER_ENDED):
                raise Failed("WorkerEnded", str(error).partition(". Details")[0].strip()) from None
            raise
        finally:
            self._witness.end()

    def _until_clear(self, consumer: Consumer) -> Fields:
        emitted = self._began
        while True:
            time.sleep(self._stats.block_s)
            progress = self._progress()
            no_batch = self._window.no_batch(progress)
            if (lost := self._silence.lost_batch()) is not None:
                raise Failed("BatchLost", f"a worker could not send a batch ({lost})")
            error = consumer.error
            if error is not None:
                if not str(error).startswith(_TIMED_OUT):
                    raise error
                started = progress.all_started_at is not None
                if progress.delivered or not started or not self._window.undisturbed():
                    raise self._silence.for_good(consumer.thread)
                no_batch = True
            if no_batch:
                waited_s = progress.look.load.at_s - (progress.all_started_at or self._began)
                raise self._silence.from_the_start(waited_s, consumer.thread)
            decision = self._window.add(progress)
            opens = self._opened is None and self._window.opened
            if opens:
                self._opened, self.opened_at_s = self._spent(), time.monotonic()
            # A loader that is hopelessly slow ends before its window opens.
            if opens or (not self._witness.began and progress.all_started_at is not None):
                self._witness.begin(self._spent(), self.workers())
            if decision is not None:
                return self._fields(decision)
            if progress.look.load.at_s - emitted >= _EMIT_EVERY_S:
                emitted = progress.look.load.at_s
                self._emit(self._fields(None))
                self._unit.progress(self._words(progress))

    def for_the_others(self, reached: bool) -> None:
        """Go on loading until every rank knows its rate, or there is no time left for it."""
        self._state = State.REACHED if reached else State.NOT_REACHED
        until = self._began + _WAITING_SHARE * float(self._unit.limits.timeout_s)
        self._roster.tell(self._state, self._pids())
        while not self._roster.all_know() and time.monotonic() < until and not self.budget.spent:
            self._unit.progress("loading until the other ranks know their rates")
            time.sleep(self._stats.block_s)
            self.budget.look(self.workers())
            self._roster.tell(self._state, self._pids())
        if self.budget.spent:
            self._consumer.stop()

    def all_reached(self) -> bool:
        """Whether every rank has a rate that is enough."""
        return self._roster.all_reached()

    def explains(self) -> bool:
        """Whether this rank is the one to say why: a single slow one shows that itself."""
        return self._roster.first_to_miss() == self._unit.rank

    def alone(self) -> Rate | None:
        """The rate now that the other ranks have ended; None where they have not, or too few."""
        until = time.monotonic() + _GONE_LIMIT_S
        while not self._roster.others_gone():
            if time.monotonic() >= until:
                return None
            time.sleep(_POLL_S)
        self._unit.progress("measuring this rank alone")
        time.sleep(self._stats.block_s)  # batches that were loaded beside the others
        maker, xs = self._window.new_maker(), list[float]()
        until = time.monotonic() + 2 * self._stats.stage_s
        while len(xs) < FEWEST_BLOCKS and time.monotonic() < until and not self.budget.spent:
            block = maker.add(self._progress().look)
            if block is not None:
                xs.append(block.x)
            time.sleep(self._stats.block_s)
        return rate_of_blocks(xs, self._stats.alpha_pass) if xs else None

    def _progress(self) -> Progress:
        slots, batches = self._counters.read(), self._consumer.batches
        hidden = batches > 0 and all(slot.pid is None for slot in slots)
        if hidden:  # workers that may not open our memory: go by the batches that arrived
            if self._batch_size is None:
                raise Unavailable(
                    "the workers cannot tell what they have loaded, and the batches of this loader "
                    "have no size of their own; let it have a batch_size instead of a batch_sampler"
                )
            finished = batches * self._batch_size
            starts: list[float | None] = [self._began]
            warm = batches >= 2 * self._workers
        else:
            finished = sum(slot.finished for slot in slots)
            starts = [None if s.started_ns is None else s.started_ns / 1e9 for s in slots]
            warm = all(slot.finished or slot.empty for slot in slots)
        if warm and self._state is State.STARTING:
            self._state = State.LOADING
        self._roster.tell(self._state, self._pids())
        self.budget.look(self.workers())
        consumed = self._consumer.consumed()
        return Progress(
            look=Look(
                finished if consumed is None else consumed, self._meter.read(time.monotonic())
            ),
            delivered=batches * (self._batch_size or 1),
            all_started_at=None if None in starts else max(s for s in starts if s is not None),
            all_finished_one=warm and self._roster.all_load(),
            budget_spent=self.budget.spent,
        )

    def costs(self) -> Costs | None:
        """What a sample has cost since the warm-up; None before that is over, or where hidden."""
        return None if self._opened is None else costs(self._opened, self._spent())

    def workers(self) -> list[int]:
        """Their pids, as far as they have said them."""
        return [slot.pid for slot in self._counters.read() if slot.pid is not None]

    def _pids(self) -> list[int]:
        return list(dict.fromkeys([os.getpid(), *self.workers(), *self._burners]))

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
        first = self._consumer.first_batch_at
        return {
            **self._window.fields(decision),
            "first_batch_s": None if first is None else round(first - self._began, 3),
            "corrupt_samples": corrupt,
            "corrupt_percent": round(100 * corrupt / max(1, corrupt + finished), 3),
            "corrupt_files": tuple(dict.fromkeys(names)),
            "throttled_percent": self._throttled_percent(),
            "load_1m": os.getloadavg()[0],
            "cpu_budget": None if self._opened is None else budget(self._opened, self._spent()),
            "read_gib": self.budget.read_gib,
            "evidence": self._witness.evidence(self._spent(), self.workers()),
            "shm_need_gib": self._silence.shm_need_gib(self._unit.job.ranks),
        }

    def _spent(self) -> Spent:
        slots = self._counters.read()
        workers, main = self.workers(), os.getpid()
        return Spent(
            samples=sum(slot.finished for slot in slots),
            getitem_wall_s=sum(slot.getitem_wall_ns for slot in slots) / 1e9,
            getitem_cpu_s=sum(slot.getitem_cpu_ns for slot in slots) / 1e9,
            workers_cpu_s=self._meter.cpu_s(workers),
            workers_delay_s=self._meter.delay_s(workers),
            main_cpu_s=None if main in workers else self._meter.cpu_s([main]),
        )

    def _throttled_percent(self) -> float | None:
        now = throttling(self._unit.machine)
        if now is None or self._throttled is None:
            return None
        periods = now.nr_periods - self._throttled.nr_periods
        throttled = now.nr_throttled - self._throttled.nr_throttled
        return round(100 * throttled / periods, 1) if periods > 0 else 0.0
