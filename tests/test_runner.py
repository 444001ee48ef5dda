"""The runner over made-up checks: order, needs, deadlines, lowering, and what goes wrong."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from preflight.plan import Plan, Planned, PlannedUnit
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


def planned(
    made: Check[Any, Any],
    *,
    required: bool = True,
    skip: str | None = None,
    units: Sequence[PlannedUnit] = (PlannedUnit(),),
) -> Planned:
    limits = Limits(required=required, timeout_s=5.0)
    return Planned(check=made, limits=limits, skip=skip, units=tuple(units))


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
    assert "--shm-size=17g" in (finding.remedy or "")  # the 16 that there are were full
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


FOUR = tuple(PlannedUnit(f"GPU {number}", f"GPU-{number}") for number in range(4))


def fanned(monkeypatch: pytest.MonkeyPatch, ended: dict[str, Ended]) -> Result:
    """The result of a check of four GPUs whose children ended so; the others well."""

    def run_unit(request: dict[str, Any], **options: Any) -> Ended:
        visible = request["environment"]["CUDA_VISIBLE_DEVICES"]
        assert visible == request["subject"].replace(" ", "-")
        well = Ended("done", 1.0, answer={"value": 2.0})
        return ended.get(request["subject"], well)

    monkeypatch.setattr(runner, "run_isolated", run_unit)
    made = replace(check(isolate=True), gpu=True, fan_out="gpu")
    (result,) = run(planned(made, units=FOUR))
    return result


def test_a_gpu_that_hangs_costs_nobody_elses_result(monkeypatch: pytest.MonkeyPatch) -> None:
    hung = Ended("timeout", 5.0, answer={"value": 0.1}, last_progress="running a kernel")
    result = fanned(monkeypatch, {"GPU 2": hung})
    assert [(f.id, f.outcome, f.subject) for f in result.findings] == [
        *[("made.value", Outcome.PASS, None)] * 3, ("made.completed", Outcome.FAIL, "GPU 2"),
    ]  # fmt: skip
    assert result.findings[-1].blame is Blame.NODE
    assert (result.outcome, result.partial) == (Outcome.FAIL, True)
    assert "running a kernel on GPU 2" in (result.reason or "")


def test_all_units_of_a_check_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fanned(monkeypatch, {})
    assert result.reading == [{"value": 2.0}] * 4
    assert (result.outcome, result.partial, result.reason) == (Outcome.PASS, False, None)


def test_a_gpu_that_failed_before_is_not_measured_and_the_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def run_unit(request: dict[str, Any], **options: Any) -> Ended:
        asked.append(request["subject"])
        return Ended("done", 1.0, answer={"value": 2.0})

    def bad(readings: Any, limits: Any) -> list[Finding]:
        return [Finding(id="first.bad", outcome=Outcome.FAIL, subject="GPU 1", blame=Blame.NODE)]

    monkeypatch.setattr(runner, "run_isolated", run_unit)
    second = replace(check("second", needs=("first",), isolate=True), fan_out="gpu")
    results = run(planned(check("first", judge=bad)), planned(second, units=FOUR))
    assert sorted(asked) == ["GPU 0", "GPU 2", "GPU 3"]
    assert (results[1].outcome, results[1].blocked_by) == (Outcome.PASS, None)
    assert results[1].findings[-1].subject == "GPU 1"


def test_what_blocked_a_check_stands_in_its_result() -> None:
    results = run(planned(check("first", small)), planned(check("second", needs=("first",))))
    assert (results[1].outcome, results[1].blocked_by) == (Outcome.SKIP, "first")


def test_a_thread_that_cannot_be_started_costs_that_unit_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Short(runner.ThreadPoolExecutor):
        def submit(self, run: Any, *arguments: Any, **named: Any) -> Any:
            if arguments[1].subject == "GPU 2":
                raise RuntimeError("can't start new thread")
            return super().submit(run, *arguments, **named)

    monkeypatch.setattr(runner, "ThreadPoolExecutor", Short)
    result = fanned(monkeypatch, {})
    assert [f.outcome for f in result.findings[:3]] == [Outcome.PASS] * 3
    (short,) = result.findings[3:]
    assert (short.subject, short.outcome) == ("GPU 2", Outcome.FAIL)
    assert "processes" in (short.remedy or "") or "pids" in (short.remedy or "")


def test_what_was_spent_before_counts_against_the_deadline() -> None:
    plan = Plan((planned(check()),), making.job(), making.facts(), 60.0)
    (result,) = runner.Runner(plan, host(), Stop(), spent_s=61.0).run()
    assert "run.deadline_s (60)" in (result.reason or "")
