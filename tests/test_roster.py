"""What ranks know of each other: every row in a process of its own, as they are."""

from __future__ import annotations

import os

import pytest

from preflight import memfd
from preflight.roster import MOST_PIDS, Roster, State


def others(roster: Roster) -> list[Roster]:
    """The same memory as the ranks see it."""
    assert roster.fd is not None
    return [Roster.inherited(roster.fd, roster.ranks, rank) for rank in range(roster.ranks)]


def test_ranks_see_each_other_and_those_that_ended_no_more() -> None:
    roster = Roster.create(3)
    ranks = others(roster)
    for rank in ranks:
        rank.tell(State.LOADING, [100 * rank.rank + 1, 100 * rank.rank + 2])
    assert ranks[1].pids() == [1, 2, 101, 102, 201, 202]
    roster.close_row(0)
    assert ranks[1].pids() == [101, 102, 201, 202]
    assert [rank.others_gone() for rank in ranks] == [False, False, False]
    roster.close_row(2)
    assert ranks[1].others_gone() and not ranks[1].all_know()
    roster.close()
    assert roster.fd is None


def test_a_rank_that_forks_shares_its_row() -> None:
    roster = Roster.create(2)
    if (child := os.fork()) == 0:
        assert roster.fd is not None
        Roster.inherited(roster.fd, 2, 1).tell(State.LOADING, [os.getpid()])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert roster.pids() == [child]
    assert roster.states() == (State.STARTING, State.LOADING)


def test_all_load_when_the_last_one_does_or_is_gone() -> None:
    first, second, third = others(Roster.create(3))
    first.tell(State.LOADING, [1])
    second.tell(State.LOADING, [2])
    assert not first.all_load()
    first.close_row(third.rank)
    assert first.all_load()


def test_all_know_and_all_reached() -> None:
    first, second = others(Roster.create(2))
    first.tell(State.REACHED, [1])
    assert not first.all_know()
    second.tell(State.NOT_REACHED, [2])
    assert first.all_know() and not first.all_reached()
    assert first.first_to_miss() == 1
    again, other = others(Roster.create(2))
    again.tell(State.REACHED, [1])
    other.tell(State.REACHED, [2])
    assert again.all_reached()
    assert again.first_to_miss() == 0  # nobody


def test_a_state_never_goes_back() -> None:
    (rank,) = others(Roster.create(1))
    rank.tell(State.REACHED, [1])
    rank.tell(State.LOADING, [1, 2])
    assert rank.states() == (State.REACHED,)
    assert rank.pids() == [1, 2]


def test_more_processes_than_a_row_holds_are_cut_off_and_no_neighbour_is_overwritten() -> None:
    first, second = others(Roster.create(2))
    second.tell(State.LOADING, [7])
    first.tell(State.LOADING, range(1, 3000))
    assert len(first.pids()) == MOST_PIDS + 1 and first.pids()[-1] == 7


def test_nobody_beside_us() -> None:
    alone = Roster.alone()
    alone.tell(State.LOADING, [1])
    assert alone.all_load() and not alone.all_know() and alone.others_gone()


def test_an_old_interpreter_asks_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    fd = memfd.anonymous_file("test")
    assert os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:test")
    assert not os.get_inheritable(fd)
    os.close(fd)
