"""A result and its findings in words: the sentences that table, Markdown and JUnit share.

Nothing is judged here, and nothing is cleaned: whoever prints a sentence cleans it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from preflight.model import Finding, Report, Result, Scalar
from preflight.outcome import Blame, Outcome, worst
from preflight.report.numbers import apart, margin, number

_ORDER = (Outcome.FAIL, Outcome.ERROR, Outcome.WARN, Outcome.PASS, Outcome.SKIP)

BLAMED = {
    Blame.NODE: "this node",
    Blame.IMAGE: "the container image",
    Blame.SETUP: "how the container or the job was started",
    Blame.DATA: "the data set",
    Blame.SHARED: "what the node shares: file server, network, neighbours",
    Blame.UNKNOWN: "unknown",
}


def entries(result: Result) -> tuple[Finding, ...]:
    """The findings, and the result itself where it says worse than all of them (or has none)."""
    outcomes = [finding.outcome for finding in result.findings]
    if outcomes and worst([*outcomes, result.outcome]) == worst(outcomes):
        return result.findings
    whole = Finding(id=result.check, outcome=result.outcome, cause=result.reason)
    return (*result.findings, whole)


def decisive(result: Result) -> Finding:
    """The entry that speaks for the result: the worst, and of equals the first with a limit.

    Where that one is of several ranks or GPUs, the one of them that is furthest from its limit.
    """
    ours = entries(result)
    said = worst(entry.outcome for entry in ours)
    worst_ones = [entry for entry in ours if entry.outcome == said]
    ranked = [entry for entry in worst_ones if entry.limit is not None] or worst_ones
    return min((entry for entry in ranked if entry.id == ranked[0].id), key=_room)


def _room(finding: Finding) -> float:
    """By how much of its limit a number is on the good side of it; below 0 on the bad one."""
    have, need = finding.observed, finding.limit
    if not _is_number(have) or not _is_number(need):
        return 0.0
    room = (have - need) / (abs(need) or 1)
    return {"at_least": room, "at_most": -room}.get(finding.comparison or "", 0.0)


def problems(result: Result) -> list[Finding]:
    """The findings that somebody should read, worst first."""
    troubles = [f for f in result.findings if f.outcome not in (Outcome.PASS, Outcome.SKIP)]
    return sorted(troubles, key=lambda finding: _ORDER.index(finding.outcome))


def alike(result: Result) -> list[list[Finding]]:
    """The problems, those in one group that differ only in subject and number (eight GPUs)."""

    def key(finding: Finding) -> tuple[Any, ...]:
        return finding.outcome, finding.waived, finding.would_be, *explanation(finding)

    groups: dict[tuple[Any, ...], list[Finding]] = {}
    for finding in problems(result):
        groups.setdefault(key(finding), []).append(finding)
    return list(groups.values())


def worst_first(report: Report) -> list[Result]:
    """The results in the order in which somebody should read about them."""
    return sorted(report.results, key=lambda result: _ORDER.index(result.outcome))


def row(result: Result) -> str:
    """The result in one line of a table."""
    finding = decisive(result)
    whole = finding.id == result.check
    text = seen(finding, reading_of(result))
    notes = [lowered(finding, result.required)]
    if result.partial:
        notes.append("cut off before its end")
    more = len(problems(result)) - 1
    if more > 0:
        notes.append(f"{more} more below")
    note = ", ".join(note for note in notes if note)
    gpu = f" {which}" if (which := which_gpu(finding)) else ""
    text = text if whole else f"{name(finding, result.check)}{gpu}: {text}"
    return text + (note and f" ({note})")


def which_gpu(finding: Finding) -> str:
    """E.g. "[GPU 5]", of a miss on one of them whose sentence does not name it."""
    subject = finding.subject or ""
    named = subject.startswith("GPU ") and subject not in (finding.cause or "")
    return f"[{subject}]" if named and finding.outcome is not Outcome.PASS else ""


def title(finding: Finding) -> str:
    """The finding's id and subject, e.g. "dataloader.supply [rank 0]"."""
    return f"{finding.id} [{finding.subject}]" if finding.subject else finding.id


def name(finding: Finding, check: str) -> str:
    """The finding's id without its check."""
    return finding.id.removeprefix(f"{check}.")


def seen(finding: Finding, reading: Any = None) -> str:
    """One sentence: what was seen and what was needed, or failing that the cause.

    `reading` supplies the interval of a measured rate: "812 +- 22 samples/s of 2,511 needed".
    """
    if finding.limit is None or finding.observed is None:
        return _without_limit(finding)
    sentence = _against_limit(finding, reading)
    # An undecided number looks like a fail without its reason.
    undecided = finding.outcome is Outcome.ERROR and finding.cause
    return f"{sentence}: {finding.cause}" if undecided else sentence


def lowered(finding: Finding, required: bool) -> str | None:
    """How a waiver or `required: false` shows beside the outcome; None for a plain finding."""
    parts = ["waived" if finding.waived else None, None if required else "not required"]
    if finding.would_be is not None:
        parts.append(f"would be {finding.would_be}")
    return ", ".join(part for part in parts if part) or None


def explanation(finding: Finding) -> list[tuple[str, str]]:
    """What follows the sentence: cause, remedy, blame and the limit's source, where known."""
    said = seen(finding)  # the cause, where there is nothing better to say
    lines = [
        ("why", finding.cause if finding.cause and finding.cause not in said else None),
        ("fix", finding.remedy if finding.remedy != said else None),
        ("blame", BLAMED[finding.blame] if finding.blame else None),
        ("limit from", finding.source),
    ]
    return [(label, text) for label, text in lines if text]


def reading_of(result: Result) -> Any:
    """The reading as plain mappings and sequences, however the check handed it over."""
    return result.model_dump(include={"reading"})["reading"]


def _without_limit(finding: Finding) -> str:
    if finding.outcome is Outcome.PASS:
        known = not isinstance(finding.observed, bool) and finding.observed is not None
        text = _text(finding.observed) if known else finding.cause or "ok"
        return f"{text} {finding.unit}" if known and finding.unit else text
    text = finding.cause or finding.remedy or str(finding.outcome)
    value = "" if isinstance(finding.observed, bool) else _text(finding.observed)
    return text if not value or value in text else f"{value}: {text}"


def _against_limit(finding: Finding, reading: Any) -> str:
    have, need = finding.observed, finding.limit
    short = False
    if _is_number(have) and _is_number(need):
        observed, limit = apart(have, need)
        short = have < need
    else:
        observed, limit = _text(have), _text(need)
    observed += _margin(finding, observed, reading)
    if finding.unit:
        observed = f"{observed} {finding.unit}"
    if finding.comparison == "at_most":
        return f"{observed}, at most {limit} allowed"
    if finding.comparison == "equals":
        return f"{observed}, {limit} expected"
    return f"{observed} of {limit} needed" if short else f"{observed}, at least {limit} needed"


def _margin(finding: Finding, observed: str, reading: Any) -> str:
    """The interval of the rate that was judged, as fine as the rate itself is written."""
    for rate in _rates(reading):
        low = rate.get("low")
        same = rate["value"] == finding.observed and rate["unit"] == finding.unit
        # The lower half: the upper one is wider, since a fail has to be surer than a pass.
        if same and _is_number(low):
            return margin(rate["value"], low, observed)
    return ""


def _rates(reading: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(reading, Mapping):
        if "value" in reading and "unit" in reading:
            yield reading
        for value in reading.values():
            yield from _rates(value)
    elif isinstance(reading, (list, tuple)):
        for value in reading:
            yield from _rates(value)


def _text(value: Scalar) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else number(value)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
