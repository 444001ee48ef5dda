"""Looks at what a loader's workers are doing, some thirty times a second, while a rate is measured.

A thread of the measuring process: a few files of /proc for a few workers at a time, so that it
costs well under a hundredth of a CPU. It counts; what the shares mean is said elsewhere.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field

from preflight.machine.process_states import look
from preflight.machine.root import Root
from preflight.measure.counters import Counters

_EVERY_S = 0.03
# Two to three reads of some ten microseconds each; of more workers some are looked at in turn.
_AT_ONCE = 8


@dataclass
class Tally:
    """What was seen: how often a worker was where, and doing what."""

    seen: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    uninterruptible: int = 0
    """In the data set, in the state D."""


class WorkerStates:
    """Looks from `begin` to `end`; a second `begin` forgets what was seen before."""

    def __init__(self, machine: Root, counters: Counters) -> None:
        self._root, self._counters = machine, counters
        self._machine = machine.uname().machine
        self._tally = Tally()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._next, self._own = 0, os.getpid()

    def begin(self) -> None:
        """From now on."""
        self._tally = Tally()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """No further look."""
        self._ended.set()

    def tally(self) -> Tally:
        """What was seen since it began."""
        return self._tally

    def look(self) -> None:
        """One look at some of the workers."""
        tally, workers = self._tally, len(self._counters)
        for number in range(self._next, self._next + min(workers, _AT_ONCE)):
            slot = self._counters.slot(number % workers)
            pid, phase = slot.pid(), slot.phase()
            # A loader without workers loads in a thread of ours, and which one is not known.
            if pid is None or pid == self._own:
                continue
            seen = look(self._root, pid, self._machine)
            if seen is None or phase != slot.phase():
                continue  # it went on meanwhile: the two do not belong together
            tally.seen[phase, seen.doing] += 1
            tally.uninterruptible += seen.uninterruptible and phase == "getitem"
        self._next = (self._next + _AT_ONCE) % max(1, workers)

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self.look()
