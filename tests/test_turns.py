"""Who may begin: at once, when all are ready, or in turn; and nobody waits for the dead."""

from __future__ import annotations

from preflight.turns import AtOnce, OneByOne, Together


def test_alone_there_is_nothing_to_wait_for() -> None:
    assert AtOnce().may_go()


def test_together_means_when_the_last_one_is_ready() -> None:
    barrier = Together(3)
    first, second, third = (barrier.turn() for _ in range(3))
    assert [first.may_go(), first.may_go(), second.may_go()] == [False] * 3
    assert third.may_go() and first.may_go() and second.may_go()


def test_a_unit_that_ended_is_not_waited_for_and_counts_once() -> None:
    barrier = Together(3)
    first, second, third = (barrier.turn() for _ in range(3))
    first.leave()
    first.leave()
    assert not second.may_go()
    third.may_go()
    third.leave()
    assert second.may_go()


def test_one_by_one_the_next_begins_when_the_one_before_has_left() -> None:
    queue = OneByOne()
    first, second = queue.turn(), queue.turn()
    assert first.may_go() and first.may_go()
    assert not second.may_go()
    second.leave()  # it died while it waited: it holds nothing
    assert not queue.turn().may_go()
    first.leave()
    assert second.may_go()
