"""Who else of one check is at work: the ranks of a job know each other's processes and state.

Shared memory that the parent makes and each rank's process inherits. One writer per row and
aligned 8-byte stores: no lock, no message, and reading never waits for anybody. The parent closes
the row of a rank that has ended, in whatever way. Nothing here measures or judges.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from enum import IntEnum

from preflight.memfd import anonymous_file

_WORDS = 1024
_STATE, _COUNT, _PIDS = 0, 1, 2
MOST_PIDS = _WORDS - _PIDS


class State(IntEnum):
    """How far a rank has come. Only forward."""

    STARTING = 0
    LOADING = 1
    """Each of its workers has finished a sample."""
    REACHED = 2
    """It knows its rate, which is enough; it goes on loading for the others' sake."""
    NOT_REACHED = 3
    """The same, and the rate is not enough, or not clear."""
    GONE = 4


class Roster:
    """The rows of all ranks; this process writes to that of `rank`."""

    def __init__(self, memory: mmap.mmap, ranks: int, rank: int, fd: int | None = None) -> None:
        self.rank = rank
        self.ranks = ranks
        self.fd = fd
        self._memory = memory
        self._words = memoryview(memory).cast("Q")

    @classmethod
    def create(cls, ranks: int) -> Roster:
        """Rows for so many ranks, to be inherited by `fd`. Raises OSError: no memory."""
        fd = anonymous_file("preflight-roster")
        os.ftruncate(fd, _size(ranks))
        return cls(mmap.mmap(fd, _size(ranks)), ranks, 0, fd)

    @classmethod
    def inherited(cls, fd: int, ranks: int, rank: int) -> Roster:
        """The roster behind a descriptor that came from the parent."""
        return cls(mmap.mmap(fd, _size(ranks)), ranks, rank)

    @classmethod
    def alone(cls) -> Roster:
        """Nobody else is at work."""
        return cls(mmap.mmap(-1, _size(1)), 1, 0)

    def tell(self, state: State, pids: Iterable[int]) -> None:
        """Say how far this rank is, and which processes are its own."""
        row = self.rank * _WORDS
        mine = list(pids)[:MOST_PIDS]
        for at, pid in enumerate(mine, row + _PIDS):
            self._words[at] = pid
        self._words[row + _COUNT] = len(mine)
        self._words[row + _STATE] = max(state, self._words[row + _STATE])

    def close_row(self, rank: int) -> None:
        """The parent's word that a rank has ended."""
        self._words[rank * _WORDS + _STATE] = State.GONE

    def states(self) -> tuple[State, ...]:
        """Of all ranks, in order."""
        return tuple(State(self._words[rank * _WORDS + _STATE]) for rank in range(self.ranks))

    def pids(self) -> list[int]:
        """All living ranks' processes."""
        found: list[int] = []
        for rank, state in enumerate(self.states()):
            if state is not State.GONE:
                row = rank * _WORDS
                end = row + _PIDS + self._words[row + _COUNT]
                found += self._words[row + _PIDS : end].tolist()
        return found

    def all_load(self) -> bool:
        """Whether every rank that is still there has begun to load."""
        return State.STARTING not in self.states()

    def all_know(self) -> bool:
        """Whether every rank knows its rate, or has ended."""
        return all(state >= State.REACHED for state in self.states())

    def all_reached(self) -> bool:
        """Whether every rank has a rate that is enough."""
        return all(state is State.REACHED for state in self.states())

    def first_to_miss(self) -> int:
        """The first rank whose rate is not enough, or not clear; rank 0 where there is none."""
        states = self.states()
        return states.index(State.NOT_REACHED) if State.NOT_REACHED in states else 0

    def others_gone(self) -> bool:
        """Whether this rank is the last one."""
        states = self.states()
        return all(states[rank] is State.GONE for rank in range(self.ranks) if rank != self.rank)

    def close(self) -> None:
        """Give the memory back. Ranks that still run keep theirs."""
        self._words.release()
        self._memory.close()
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _size(ranks: int) -> int:
    return ranks * _WORDS * 8
