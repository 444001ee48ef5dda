"""The feed in lines: supply against demand, ranks, stages, the loop, and what to do about it.

Drawn from the finished document alone, a saved one included. Table, Markdown, JUnit and notebook
show these lines word for word. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from preflight.model import Report
from preflight.report.lines import Line, in_columns
from preflight.report.numbers import apart, margin, number, shares
from preflight.report.readings import Seen, figure, rate, readings
from preflight.report.stage_lines import stage_lines
from preflight.report.text import one_line
from preflight.report.what_if_lines import what_if_lines
from preflight.report.wording import problems, worst_first

MOST_RANKS = 8  # one by one; on a bigger node the rest is told as a range


class Rank(NamedTuple):
    """One rank that gave a rate, in samples/s; `low` is the lower end of its interval."""

    name: str
    supply: float
    low: float | None
    seen: Seen


def feed_lines(report: Report) -> list[Line]:
    """The lines in order; none where neither a supply nor a utilisation was measured."""
    loaders, loops = readings(report, "dataloader"), readings(report, "feed")
    ranks = sorted(_ranks(loaders), key=lambda rank: rank.supply)
    if not ranks:
        lines = [*_loop(loops)]
    else:
        job = max(len(loaders), *(int(figure(seen, "ranks") or 1) for seen in loaders))
        first = min(loaders, key=_told_first)
        lines = [
            *_supply(ranks, job),
            *stage_lines(report, first, each=job > 1),
            *_loop(loops),
            *_limit(ranks[0].seen, job),
            *what_if_lines(first, each=job > 1),
        ]
    return [*lines, *_why_and_fix(report)] if lines else []


def _told_first(seen: Seen) -> tuple[bool, bool, float]:
    """The rank with the most to tell: one of them has measured what it is not the others' to."""
    return not seen.get("stages"), not seen.get("what_if"), figure(seen, "rank") or 0


def _ranks(loaders: Sequence[Seen]) -> Iterator[Rank]:
    for position, seen in enumerate(loaders):
        supply, index = rate(seen, "supply_samples_per_s"), figure(seen, "rank")
        if supply is not None:
            low = figure(seen["supply_samples_per_s"], "low")
            yield Rank(f"rank {position if index is None else int(index)}", supply, low, seen)


def _supply(ranks: Sequence[Rank], job: int) -> Iterator[Line]:
    """The node supplies its ranks times the slowest one's rate: every step waits for that one."""
    slowest, all_measured = ranks[0], len(ranks) == job
    yield Line("feed", _against_demand(slowest, job if all_measured else 1))
    if not all_measured:
        measured = f"{len(ranks)} of {job} ranks gave a rate"
        yield Line("", f"{measured}: this is the slowest of them, held against one rank's demand")
    if job > 1:
        notes = [f"<- slowest: the node's supply is {job} times this"] if all_measured else [""]
        notes += [""] * len(ranks)
        shown, rest = ranks[:MOST_RANKS], ranks[MOST_RANKS:]
        rows = [(rank.name, rank.supply, note) for rank, note in zip(shown, notes, strict=False)]
        yield from in_columns(rows, "/s", "ranks")
        if rest:
            between = f"between {number(rest[0].supply)} and {number(rest[-1].supply)} /s"
            yield Line("", f"and {len(rest)} more {between}")
        yield from _scaling(ranks, job)
    paced = figure(slowest.seen, "paced_samples_per_s")
    if paced is not None:
        each = "" if job == 1 else " a rank"
        yield Line("", f"(held to {number(paced)}/s{each} to spare the file server)")


def _against_demand(rank: Rank, times: int) -> str:
    demand = figure(rank.seen, "demand_samples_per_s")
    floor = figure(rank.seen, "limit_samples_per_s")
    if demand is None or demand <= 0:
        text, needed = number(times * rank.supply), ""
        known = "" if floor is None else f"; floor {number(times * floor)}"
        said = f"(no demand known{known})"
    else:
        text, needed = apart(times * rank.supply, times * demand)
        share, missing = shares(rank.supply, demand)
        waits = "not wait" if rank.supply >= demand else f"wait {missing} of the time"
        said = f"of {needed} needed ({share}): the GPU{'s' * (times > 1)} would {waits}"
    if rank.low is not None:
        text += margin(times * rank.supply, times * rank.low, text)
    return f"{text} samples/s {said}"


def _scaling(ranks: Sequence[Rank], job: int) -> Iterator[Line]:
    slowest = ranks[0].supply
    alone = next((one for r in ranks if (one := rate(r.seen, "alone_samples_per_s"))), None)
    if alone is not None:
        share, _ = shares(slowest, alone)
        text = f"{number(alone)} /s a rank; with {job} ranks {number(slowest)} ({share})"
        yield Line("alone", text)


def _loop(loops: Sequence[Seen]) -> Iterator[Line]:
    """The training loop; of several ranks the one whose GPU was used least."""
    measured = [(used, seen) for seen in loops if (used := _percent(seen, "measured")) is not None]
    if not measured:
        return
    used, seen = min(measured, key=lambda pair: pair[0])
    text = f"{used:.1f} % utilisation measured"
    if (predicted := _percent(seen, "predicted")) is not None:
        text += f", {predicted:.1f} % predicted"
    if len(measured) > 1:
        text += f" (the least of {len(measured)} ranks)"
    waits = []
    if (stalled := figure(seen, "stalled_steps_percent")) is not None:
        waits.append(f"{stalled:.0f} % of the steps")
    if (longest := figure(seen, "longest_stall_s")) is not None:
        waits.append(f"longest {_short(longest)}")
    said = [text, *(["waits: " + ", ".join(waits)] if waits else [])]
    for name, key in (
        ("first batch", "first_batch_s"),
        ("new epoch", "new_epoch_s"),
        ("with new workers", "new_epoch_restarted_s"),
    ):
        if (after := figure(seen, key)) is not None:
            said.append(f"{name} {_short(after)}")
    if (au := figure(seen, "au_percent")) is not None:
        said.append(f"AU as MLPerf counts it {au:.1f} %")
    yield Line("loop", "; ".join(said))


def _short(seconds: float) -> str:
    return f"{number(round(seconds, 2 if seconds < 1 else 1))} s"


def _percent(seen: Seen, which: str) -> float | None:
    return figure(seen, f"{which}_utilisation_percent")


def _limit(seen: Seen, job: int) -> Iterator[Line]:
    """The number that the findings speak of, where it is not the demand itself."""
    limit, demand = figure(seen, "limit_samples_per_s"), figure(seen, "demand_samples_per_s")
    if limit is not None and demand is not None and 0 < demand != limit:
        share, _ = shares(limit, demand)
        each = "" if job == 1 else " a rank"
        yield Line("limit", f"{number(limit)} samples/s{each}, {share} of what is needed")


def _why_and_fix(report: Report) -> Iterator[Line]:
    """Why a supply or a loop is not what it should be, and the remedy, of the worst one."""
    troubles = [
        finding
        for result in worst_first(report)
        for finding in problems(result)
        if finding.id == "dataloader.supply" or result.check == "feed"
    ]
    decisive = next((finding for finding in troubles if finding.remedy), None)
    if decisive is not None and decisive.cause:
        yield Line("why", one_line(decisive.cause))
    if decisive is not None and decisive.remedy:
        yield Line("fix", one_line(decisive.remedy))
