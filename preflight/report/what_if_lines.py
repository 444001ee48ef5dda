"""What other settings of the loader would give, in lines; the call to copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.report.lines import Line
from preflight.report.numbers import margin, number
from preflight.report.readings import Seen, figure, mappings, rate
from preflight.report.text import one_line


def what_if_lines(seen: Seen, *, each: bool) -> Iterator[Line]:
    """The lines of one loader's reading; none where nothing was asked. `each`: of several ranks."""
    found = seen.get("what_if")
    if not isinstance(found, Mapping):
        return
    best = seen.get("recommended")
    best = best if isinstance(best, Mapping) else {}
    said = [*_said(found, best, " a rank" if each else "")]
    label = "what if"
    for text in said:
        yield Line(label, text)
        label = ""
    call = best.get("call")
    if isinstance(call, str):
        # After its bracket it is broken between arguments only.
        yield Line("use", one_line(call), len("DataLoader("))


def _said(found: Seen, recommended: Seen, whose: str) -> Iterator[str]:
    trials = [
        (trial, value)
        for trial in mappings(found.get("trials"))
        if (value := rate(trial, "samples_per_s"))
    ]
    best = rate(recommended, "samples_per_s")
    if len(trials) > 1 and best is not None:
        (is_now, now), *others = trials
        present = f"now {_setting(is_now, prefetch=False)}: {number(now)}"
        if recommended.get("call") is not None:  # a change that is worth it
            text = number(best)
            low = figure(recommended["samples_per_s"], "low")
            text += "" if low is None else margin(best, low, text)
            yield f"{_setting(recommended)}: {text} samples/s{whose} ({present})"
        else:
            usual = figure(is_now, "prefetch_factor")
            others_told = [
                (_setting(trial, prefetch=figure(trial, "prefetch_factor") != usual), number(value))
                for trial, value in others
            ]
            tried = ", ".join(f"{setting}: {gave}" for setting, gave in others_told)
            yield f"no other setting is clearly faster: {tried} samples/s{whose} ({present})"
    cached = figure(found, "cached_samples_per_s")
    if cached is not None:
        yield f"all data in memory: {number(cached)} samples/s{whose}, by its CPU time"
    cpus = figure(found, "cpus_needed")
    if cpus is not None:
        for_all = " for all ranks" if whose else ""
        yield f"what is needed takes at least {number(int(cpus))} CPU{'s' * (cpus != 1)}{for_all}"
    notes = found.get("notes")
    yield from (one_line(note) for note in _texts(notes))
    reason = found.get("reason")
    if isinstance(reason, str):
        yield f"{'no more' if len(trials) > 1 else 'nothing'} was tried: {one_line(reason)}"


def _texts(notes: object) -> list[str]:
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def _setting(seen: Seen, *, prefetch: bool = True) -> str:
    """E.g. "12 workers, prefetch 4"."""
    workers, factor = figure(seen, "num_workers"), figure(seen, "prefetch_factor")
    text = "other workers" if workers is None else f"{workers:.0f} worker{'s' * (workers != 1)}"
    return text + (f", prefetch {factor:.0f}" if prefetch and factor is not None else "")
