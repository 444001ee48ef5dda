"""When a unit that is ready may begin to measure: at once, with all the others, or in its turn.

`may_go` is asked again and again by the thread that watches a unit, from the moment its process is
ready; `leave` is called once, when the unit has ended in whatever way.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Turn(Protocol):
    """One unit's place among the others."""

    def may_go(self) -> bool:
        """Whether it may begin; having said so once, it stays true."""

    def leave(self) -> None:
        """The unit has ended, or never became ready."""


class AtOnce:
    """Nobody to wait for."""

    def may_go(self) -> bool:
        """Always."""
        return True

    def leave(self) -> None:
        """Nothing to do."""


class Together:
    """A barrier: units begin when each of them is ready, or has ended."""

    def __init__(self, units: int) -> None:
        self._waited_for = units
        self._lock = threading.Lock()

    def turn(self) -> Turn:
        """A place for one unit."""
        return _TogetherTurn(self)

    def arrive(self) -> None:
        """One unit is ready or has ended."""
        with self._lock:
            self._waited_for -= 1

    def complete(self) -> bool:
        """Whether no unit is waited for."""
        with self._lock:
            return self._waited_for <= 0


class _TogetherTurn:
    def __init__(self, barrier: Together) -> None:
        self._barrier, self._arrived = barrier, False

    def may_go(self) -> bool:
        self.leave()
        return self._barrier.complete()

    def leave(self) -> None:
        if not self._arrived:
            self._arrived = True
            self._barrier.arrive()


class OneByOne:
    """A queue: one unit at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def turn(self) -> Turn:
        """A place for one unit."""
        return _OneByOneTurn(self._lock)


class _OneByOneTurn:
    def __init__(self, lock: threading.Lock) -> None:
        self._lock, self._held = lock, False

    def may_go(self) -> bool:
        if not self._held:
            self._held = self._lock.acquire(blocking=False)
        return self._held

    def leave(self) -> None:
        if self._held:
            self._held = False
            self._lock.release()
