"""Executes a plan: starts, times, catches; every planned check comes back as a Result.

A check is written as if nothing can go wrong around it; here is where it does. Nothing is measured
or rendered here.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from preflight import needs
from preflight.checks.contract import Unavailable, Unit
from preflight.diagnosis import ends
from preflight.ended import Ended
from preflight.isolate import Stop
from preflight.isolate import run as run_isolated
from preflight.machine.memory import oom_kills
from preflight.machine.root import Root
from preflight.model import Finding, Result
from preflight.outcome import Blame, Outcome, worst
from preflight.plan import Plan, Planned, PlannedUnit
from preflight.roster import Roster
from preflight.scratch import Scratch
from preflight.stacks import place
from preflight.turns import OneByOne, Together, Turn

_KEPT_OUTPUT_LINES = 20
_GIB = 2**30

Publish = Callable[[Sequence[Result]], None]
Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class Runner:
    """Runs one plan on one machine."""

    plan: Plan
    machine: Root
    stop: Stop
    publish: Publish = lambda results: None
    """Called when a check starts and when it has ended, with what there is so far."""
    progress: Progress = lambda check, text: None
    spent_s: float = 0.0
    """Of the run's deadline, before the first check."""

    def run(self) -> tuple[Result, ...]:
        """All results in the plan's order; checks not reached after a stop are errors."""
        deadline = time.monotonic() + self.plan.deadline_s - self.spent_s
        results: dict[str, Result] = {}
        for planned in self.plan.planned:
            result = self._one(planned, results, deadline)
            results[planned.check.id] = lowered(result, self.plan.waive)
            self.publish(list(results.values()))
        return tuple(results.values())

    def _one(self, planned: Planned, done: Mapping[str, Result], deadline: float) -> Result:
        if self.stop.signal is not None:
            return not_reached(planned, f"not reached: {self.stop.signal.name} came first")
        blocked = needs.blocked(planned, done)
        if blocked is not None and not blocked.units:  # before skip: it tells more
            result = _lone(planned, "applies", Outcome.SKIP, blocked.reason)
            return result.model_copy(update={"blocked_by": blocked.by})
        if planned.skip is not None:
            return _lone(planned, "applies", Outcome.SKIP, planned.skip)
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return not_reached(planned, f"not reached in run.deadline_s ({self.plan.deadline_s:g})")
        self.progress(planned.check.id, "")
        # The kernel may kill all of us: the report on disk then names who was running.
        running = not_reached(planned, "was running when the run was cut off")
        self.publish([*done.values(), running])
        began, kills = time.monotonic(), oom_kills(self.machine)
        units = planned.units if blocked is None else blocked.units
        units = needs.on_sound_devices(units, self.plan.facts.cuda_devices(), done)
        ended = self._observe(planned, units, done, left_s)
        kills_now = oom_kills(self.machine)
        meanwhile = None if kills is None or kills_now is None else kills_now - kills
        result = self._result(planned, units, ended, meanwhile)
        if blocked is not None:
            result = needs.with_skipped(result, blocked)
        return result.model_copy(update={"duration_s": round(time.monotonic() - began, 3)})

    def _observe(
        self,
        planned: Planned,
        units: Sequence[PlannedUnit],
        done: Mapping[str, Result],
        left_s: float,
    ) -> list[Ended]:
        earlier = {
            id: done[id].reading
            for id in (*planned.check.needs, *planned.check.uses)
            if id in done and done[id].reading is not None
        }
        if not planned.check.isolate:
            return [self._in_process(planned, unit, earlier) for unit in units]
        one_by_one = planned.check.turns == "one_by_one"
        order = OneByOne() if one_by_one else Together(len(units))
        turns = [order.turn() for _ in units]
        started: list[Future[Ended] | Ended] = []
        try:
            roster = Roster.create(self.plan.job.ranks) if planned.check.fan_out == "rank" else None
        except OSError as error:  # no memory, no descriptor
            return [Ended("raised", 0.0, text=_text(error)) for _ in units]
        with ThreadPoolExecutor(len(units)) as pool:
            for unit, turn in zip(units, turns, strict=True):
                try:
                    started.append(
                        pool.submit(self._isolated, planned, unit, turn, roster, earlier, left_s)
                    )
                except RuntimeError as error:  # no thread left: the others must not wait for it
                    turn.leave()
                    started.append(Ended("raised", 0.0, text=_text(error)))
        ended = [end if isinstance(end, Ended) else end.result() for end in started]
        if roster is not None:
            roster.close()
        return ended

    def _isolated(
        self,
        planned: Planned,
        unit: PlannedUnit,
        turn: Turn,
        roster: Roster | None,
        earlier: Mapping[str, Any],
        left_s: float,
    ) -> Ended:
        scratch = Scratch(f"{os.getpid()}-{secrets.token_hex(4)}")
        who = f"{unit.subject}: " if len(planned.units) > 1 else ""
        request = {
            "task": "observe",
            "check": planned.check.id,
            "subject": unit.subject,
            "environment": {} if unit.cuda_id is None else {"CUDA_VISIBLE_DEVICES": unit.cuda_id},
            "limits": planned.limits.model_dump(mode="json"),
            "job": self.plan.job.model_dump(mode="json"),
            "facts": self.plan.facts.model_dump(mode="json", by_alias=True),
            "earlier": earlier,
            "scratch": scratch.token,
            "rank": unit.rank,
            "ranks": self.plan.job.ranks,
            "roster": None if roster is None else roster.fd,
        }
        try:
            return run_isolated(
                request,
                timeout_s=planned.limits.timeout_s,
                total_s=left_s,
                stop=self.stop,
                turn=turn,
                inherit=() if roster is None or roster.fd is None else (roster.fd,),
                on_progress=lambda text: self.progress(planned.check.id, who + text),
            )
        finally:
            if roster is not None:
                roster.close_row(unit.rank)
            scratch.remove()

    def _in_process(
        self, planned: Planned, planned_unit: PlannedUnit, earlier: Mapping[str, Any]
    ) -> Ended:
        began = time.monotonic()
        unit = Unit(
            subject=planned_unit.subject, machine=self.machine, limits=planned.limits,
            job=self.plan.job, facts=self.plan.facts, earlier=earlier,
            scratch=Scratch(secrets.token_hex(4)),
        )  # fmt: skip
        try:
            answer = planned.check.observe(unit).model_dump(mode="json")
        except Unavailable as reason:
            return Ended("unavailable", time.monotonic() - began, text=str(reason))
        except Exception as error:
            return Ended("raised", time.monotonic() - began, text=_text(error))
        finally:
            unit.scratch.remove()
        return Ended("done", time.monotonic() - began, answer=answer)

    def _result(
        self,
        planned: Planned,
        units: Sequence[PlannedUnit],
        ended: Sequence[Ended],
        kills: int | None,
    ) -> Result:
        whole = [end.answer for end in ended if end.kind == "done"]
        findings = _judge(planned, whole) if whole else []
        troubles = [
            ends.finding(end, self._around(planned, unit.subject, kills, end))
            for unit, end in zip(units, ended, strict=True)
            if end.kind != "done"
        ]
        answers = [end.answer for end in ended]
        outcome = worst(finding.outcome for finding in (*findings, *troubles))
        printed = "\n".join(end.output for end in ended if end.output).splitlines()
        return Result(
            check=planned.check.id,
            outcome=outcome,
            required=planned.limits.required,
            reason=troubles[0].cause if troubles else None,
            duration_s=0.0,
            partial=any(end.answer is not None for end in ended if end.kind != "done"),
            reading=answers[0] if len(answers) == 1 else answers,
            findings=(*findings, *troubles),
            output="\n".join(printed[-_KEPT_OUTPUT_LINES:]) if troubles and printed else None,
        )

    def _around(
        self, planned: Planned, subject: str | None, kills: int | None, end: Ended
    ) -> ends.Circumstances:
        job, facts = self.plan.job, self.plan.facts
        seen = end.answer if isinstance(end.answer, dict) else {}
        need_gib = job.shm_bytes() / _GIB if job.dataset is None else seen.get("shm_need_gib")
        return ends.Circumstances(
            check=planned.check.id,
            subject=subject,
            timeout_s=planned.limits.timeout_s,
            gpu=planned.check.gpu,
            cpus=self.plan.facts.cpu.effective,
            stopped_by=self.stop.signal.name if self.stop.signal else None,
            oom_kills=kills,
            # What was there was not enough memory, so as much again.
            more_memory_gib=max(1, round(facts.memory.headroom_gib)),
            shm_size_gib=None if facts.shm is None else facts.shm.size_gib,
            shm_need_gib=need_gib,
            nofile=facts.processes.nofile,
            stood_at=place(end.output),
        )


def lowered(result: Result, waive: frozenset[str]) -> Result:
    """A waiver turns a fail into a warning, required: false also an error; both stay visible."""

    def lower(finding: Finding) -> Finding:
        update: dict[str, Any] = {"outcome": Outcome.WARN, "would_be": finding.outcome}
        if finding.outcome is Outcome.FAIL and waive & {result.check, finding.id}:
            return finding.model_copy(update={**update, "waived": True})
        if not result.required and finding.outcome in (Outcome.FAIL, Outcome.ERROR):
            return finding.model_copy(update=update)
        return finding

    findings = tuple(lower(finding) for finding in result.findings)
    outcome = worst(finding.outcome for finding in findings)
    return result.model_copy(update={"findings": findings, "outcome": outcome})


def not_reached(planned: Planned, reason: str = "not reached") -> Result:
    """What stands in the report for a check that has not run."""
    return _lone(planned, "completed", Outcome.ERROR, reason)


def _judge(planned: Planned, answers: Sequence[Any]) -> list[Finding]:
    try:
        readings = [planned.check.reading.model_validate(answer) for answer in answers]
        return planned.check.judge(readings, planned.limits)
    except Exception as error:  # a gate that crashes must still leave its verdict: undecided
        finding = _lone(planned, "completed", Outcome.ERROR, f"cannot judge: {_text(error)}")
        remedy = "please report this with preflight.json: it is a bug in preflight"
        return [finding.findings[0].model_copy(update={"remedy": remedy})]


def _lone(planned: Planned, name: str, outcome: Outcome, reason: str) -> Result:
    """A result whose only finding says why there is nothing else."""
    error = outcome is Outcome.ERROR
    finding = Finding(
        id=f"{planned.check.id}.{name}", outcome=outcome, cause=reason,
        remedy="run the gate again" if error else None,
        blame=Blame.UNKNOWN if error else None,
    )  # fmt: skip
    return Result(
        check=planned.check.id, outcome=outcome, required=planned.limits.required,
        reason=reason, duration_s=0.0, findings=(finding,),
    )  # fmt: skip


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
