"""The runner over made-up checks: order, needs, deadlines, lowering, and what goes wrong."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from preflight import runner
from preflight.checks.contract import Check, Limits, Reading, Unavailable, Unit
from preflight.ended import Ended
from preflight.isolate import Stop
from preflight.judge import Miss, at_least
from preflight.machine.root import host
from preflight.model import Finding, Result
from preflight.outcome import Blame, Outcome
from preflight.plan import Plan, Planned
from tests import making


class OneNumber(Reading):
    value: float


def judge(readings: Sequence[OneNumber], limits: Limits) -> list[Finding]:
    miss = Miss("too small", "make it larger", Blame.NODE)
    return [at_least("made.value", reading.value, 1.0, "things", miss) for reading in readings]


def check(
    id: str = "made",
    observe: Callable[[Unit], Any] = lambda unit: OneNumber(value=2.0),
    *,
    needs: tuple[str, ...] = (),
    judge: Any = judge,
    isolate: bool = False,
) -> Check[Any, Any]:
    return Check(
        id=id, title="", about="", limits=Limits, reading=OneNumber, findings={"value": "grow"},
        observe=observe, judge=judge, needs=needs, isolate=isolate,
    )  # fmt: skip


def planned(made: Check[Any, Any], *, required: bool = True, skip: str | None = None) -> Planned:
    limits = Limits(required=required, timeout_s=5.0)
    return Planned(check=made, limits=limits, skip=skip, subjects=(None,))


def run(
    *plans: Planned, waive: Sequence[str] = (), stop: Stop | None = None, deadline_s: float = 60
) -> list[Result]:
    plan = Plan(plans, making.job(), making.facts(), deadline_s, frozenset(waive))
    return list(runner.Runner(plan, host(), stop or Stop()).run())


def small(unit: Unit) -> OneNumber:
    return OneNumber(value=0.5)


def raising(error: BaseException) -> Callable[[Unit], OneNumber]:
    def observe(unit: Unit) -> OneNumber:
        raise error

    return observe


def test_a_reading_is_judged_and_kept() -> None:
    (result,) = run(planned(check()))
    assert (result.outcome, result.reading, result.partial) == (Outcome.PASS, {"value": 2.0}, False)


def test_a_check_that_raises_is_an_error_not_a_fail() -> None:
    (result,) = run(planned(check(observe=raising(RuntimeError("boom")))))
    assert result.outcome is Outcome.ERROR
    (finding,) = result.findings
    assert finding.id == "made.completed"
    assert "RuntimeError: boom" in (finding.cause or "")


def test_unavailable_brings_its_own_cause_and_remedy() -> None:
    (result,) = run(planned(check(observe=raising(Unavailable("no room; make some")))))
    (finding,) = result.findings
    assert (finding.outcome, finding.cause, finding.remedy) == (
        Outcome.ERROR, "no room", "make some",
    )  # fmt: skip


def test_a_judge_that_raises_is_our_bug_and_undecided() -> None:
    def broken(readings: Any, limits: Any) -> list[Finding]:
        raise ZeroDivisionError("oops")

    (result,) = run(planned(check(judge=broken)))
    assert result.outcome is Outcome.ERROR
    assert "bug in preflight" in (result.findings[0].remedy or "")


@pytest.mark.parametrize("first", [small, raising(RuntimeError("boom"))])
def test_what_needs_a_check_that_did_not_pass_is_skipped_with_the_reason(first: Any) -> None:
    results = run(planned(check("first", first)), planned(check("second", needs=("first",))))
    assert results[1].outcome is Outcome.SKIP
    assert results[1].reason == "needs first, which did not pass"


def test_a_waived_need_lets_the_next_check_run() -> None:
    first, second = check("first", small), check("second", needs=("first",))
    results = run(planned(first), planned(second), waive=["first"])
    assert [result.outcome for result in results] == [Outcome.WARN, Outcome.PASS]


def test_a_check_that_does_not_apply_is_skipped_with_the_reason() -> None:
    (result,) = run(planned(check(), skip="no GPU here"))
    assert (result.outcome, result.reason) == (Outcome.SKIP, "no GPU here")
    assert result.findings[0].id == "made.applies"


@pytest.mark.parametrize("id", ["made", "made.value"])
def test_a_waiver_turns_a_fail_into_a_visible_warning(id: str) -> None:
    (result,) = run(planned(check(observe=small)), waive=[id])
    (finding,) = result.findings
    assert (result.outcome, finding.would_be, finding.waived) == (
        Outcome.WARN, Outcome.FAIL, True,
    )  # fmt: skip


def test_a_waiver_does_not_touch_an_error() -> None:
    (result,) = run(planned(check(observe=raising(RuntimeError()))), waive=["made"])
    assert result.outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("observe", "would_be"),
    [(small, Outcome.FAIL), (raising(RuntimeError()), Outcome.ERROR)],
)
def test_not_required_lowers_fail_and_error(observe: Any, would_be: Outcome) -> None:
    (result,) = run(planned(check(observe=observe), required=False))
    (finding,) = result.findings
    assert (result.outcome, finding.would_be, finding.waived) == (Outcome.WARN, would_be, False)


def test_after_a_stop_nothing_more_is_started() -> None:
    stop = Stop()

    def interrupt(unit: Unit) -> OneNumber:
        stop.signal = signal.SIGTERM
        return OneNumber(value=2.0)

    results = run(planned(check("first", interrupt)), planned(check("second")), stop=stop)
    assert [result.outcome for result in results] == [Outcome.PASS, Outcome.ERROR]
    assert "SIGTERM came first" in (results[1].reason or "")


def test_past_the_deadline_nothing_more_is_started() -> None:
    (result,) = run(planned(check()), deadline_s=0.0)
    assert result.outcome is Outcome.ERROR
    assert "run.deadline_s" in (result.reason or "")


def test_each_result_is_published_when_it_is_there() -> None:
    seen: list[int] = []
    plan = Plan(
        (planned(check("first")), planned(check("second"))), making.job(), making.facts(), 60.0
    )
    runner.Runner(plan, host(), Stop(), lambda results: seen.append(len(results))).run()
    assert seen == [1, 1, 2, 2]  # once when it starts, once when it is there


def test_later_checks_get_the_readings_they_need() -> None:
    got: list[Any] = []

    def second(unit: Unit) -> OneNumber:
        got.append(dict(unit.earlier))
        return OneNumber(value=2.0)

    run(planned(check("first")), planned(check("second", second, needs=("first",))))
    assert got == [{"first": {"value": 2.0}}]


def isolated(monkeypatch: pytest.MonkeyPatch, ended: Ended) -> Result:
    """The result of a check whose child ended like this."""
    monkeypatch.setattr(runner, "run_isolated", lambda request, **options: ended)
    (result,) = run(planned(check(isolate=True)))
    return result


def test_a_child_that_died_with_a_known_cause_fails_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_3>"
    result = isolated(monkeypatch, Ended("raised", 1.0, text=text, output="line\n" * 100))
    (finding,) = result.findings
    assert (finding.outcome, finding.blame) == (Outcome.FAIL, Blame.SETUP)
    assert "--shm-size=1g" in (finding.remedy or "")
    assert (result.output or "").count("line") == 20


def test_a_partial_reading_stands_but_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Ended("timeout", 5.0, answer={"value": 0.1}, last_progress="loading")
    result = isolated(monkeypatch, ended)
    assert (result.outcome, result.partial, result.reading) == (
        Outcome.ERROR, True, {"value": 0.1},
    )  # fmt: skip
    assert "no answer in 5 s (last: loading)" in (result.reason or "")


def test_an_answer_that_is_no_reading_is_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    result = isolated(monkeypatch, Ended("done", 1.0, answer={"nonsense": 1}))
    assert result.outcome is Outcome.ERROR
