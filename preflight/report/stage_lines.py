"""The stages of the feed, one to a line, and what a sample costs in CPU time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preflight.model import Report
from preflight.outcome import Outcome
from preflight.report.lines import Line, in_columns
from preflight.report.numbers import number
from preflight.report.readings import FIRST_TOUCH, Seen, figure, mappings, rate, readings
from preflight.report.text import one_line

LIMITS = "<- limits"
_CALLED = {"copy": "pinned copy"}
_PARTS = {
    "getitem_ms": "fetch and decode",
    "collate_ms": "collate",
    "main_ms": "main process",
}
_PART_OF = {
    "fetch": ("getitem_ms", "fetch and decode"),
    "decode": ("getitem_ms", "decode"),
    "transport": ("collate_ms", "collate"),
    "copy": ("main_ms", "the main process"),
}
"""Which part of the CPU budget a stage is in, and what to call that part beside the stage."""


def stage_lines(report: Report, seen: Seen, *, each: bool) -> Iterator[Line]:
    """The stages of one loader; the one that limits is marked and says what its sample costs.

    `each`: the loader is that of one rank of several.
    """
    limiting, budget = seen.get("limiting_stage"), _Budget(seen)
    touched = any(rate(one, FIRST_TOUCH) for one in readings(report, "storage"))
    rows, told = [], False
    for stage in mappings(seen.get("stages")):
        name, value, note = str(stage.get("name")), rate(stage, "samples_per_s"), _note(stage)
        if value is None:
            continue
        cost = budget.of(name) if name == limiting else ""
        if cost and "ms of CPU" in note:
            note = ""
        if touched and name == "fetch" and note != "page cache":
            name, note = "storage first touch", "" if note == "first touch" else note
        limits = f"{LIMITS}: {cost}" if cost else LIMITS
        marks = [f"({note})" if note else "", limits if stage.get("name") == limiting else ""]
        rows.append((_CALLED.get(name, one_line(name)), value, "   ".join(filter(None, marks))))
        told = told or bool(cost)
    yield from in_columns(rows, "/s a rank", "stage") if each else in_columns(rows, "/s")
    if limiting is None and (alone := _one_by_one(rows)):
        whose = " a rank" if each else ""
        given = f"one after the other they give {number(alone)} /s{whose}"
        yield Line("", f"none of these limits: {given}")
    if (rows or not _passed(report)) and not told and (whole := budget.whole()):
        yield Line("", whole)


def _one_by_one(rows: Iterable[tuple[str, float, str]]) -> float:
    """Samples/s of a worker that goes through them; the copy is made beside it."""
    seconds = sum(1 / per_s for name, per_s, _ in rows if name != _CALLED["copy"] and per_s > 0)
    return 1 / seconds if seconds else 0.0


def _passed(report: Report) -> bool:
    loaders = [result for result in report.results if result.check == "dataloader"]
    return all(result.outcome is Outcome.PASS for result in loaders)


def _note(stage: Seen) -> str:
    note = stage.get("note")
    return one_line(note) if isinstance(note, str) else ""


class _Budget:
    """Milliseconds of CPU that one sample cost in the running loader, by part."""

    def __init__(self, seen: Seen) -> None:
        known = {part: figure(seen.get("cpu_budget"), part) for part in _PARTS}
        self._parts = {part: ms for part, ms in known.items() if ms is not None}
        self._digits = 2 if sum(self._parts.values()) >= 0.1 else 4

    def of(self, stage: str) -> str:
        """E.g. "2.46 ms of CPU a sample, 2.25 of them decode"."""
        part, name = _PART_OF.get(stage, ("", ""))
        own = f", {self._text(part)} of them {name}" if part in self._parts else ""
        return self._total() + own if self._parts else ""

    def whole(self) -> str:
        """E.g. "2.46 ms of CPU a sample: fetch and decode 2.25, collate 0.15, ..."."""
        parts = ", ".join(
            f"{name} {self._text(p)}" for p, name in _PARTS.items() if p in self._parts
        )
        return f"{self._total()}: {parts}" if parts else ""

    def _total(self) -> str:
        # Of the parts as they are written, so that they add up for a reader.
        total = sum(round(ms, self._digits) for ms in self._parts.values())
        least = "at least " if len(self._parts) < len(_PARTS) else ""
        return f"{least}{total:,.{self._digits}f} ms of CPU a sample"

    def _text(self, part: str) -> str:
        return f"{self._parts[part]:,.{self._digits}f}"
