"""The verdict in one line: it goes first in every format and is the termination message.

Readers that cut at 80 characters still get the verdict, the node and what changed the exit code.
The verdict is put into words here, not decided: outcome and exit code come with the report.
"""

from __future__ import annotations

import re

from preflight.model import Report, Result, judged
from preflight.outcome import Blame, Outcome, worst
from preflight.report.numbers import seconds
from preflight.report.readings import FIRST_TOUCH, rate, readings
from preflight.report.text import one_line
from preflight.report.wording import decisive, seen, which_gpu

USAGE, UNDECIDED, INTERRUPTED = 2, 3, (130, 143)
NAME_CHARACTERS = 40
_CLAUSE_END = re.compile(r"[;:] | \(")
_SWITCHES = ("report_only", "allow_undecided")


def headline(report: Report) -> str:
    """E.g. "FAIL node gpu-b17: dataloader: 812 samples/s of 2,511 needed; give it 7 CPUs"."""
    node = one_line(report.node.name) or "without a name"
    if len(node) > NAME_CHARACTERS:
        node = node[: NAME_CHARACTERS - 3] + "..."
    note = _note(report)
    line = f"{verdict(report)} node {node}" + (f" ({note})" if note else "")
    why = one_line(report.reason or reason(report))
    if not why:
        return line
    fix = _fix(report) if verdict(report) in ("FAIL", "UNDECIDED") else ""
    return f"{line}: {why}; {fix}" if fix and fix not in why else f"{line}: {why}"


def verdict(report: Report) -> str:
    """PASS, FAIL, UNDECIDED, NOT MEASURED, INTERRUPTED or INCOMPLETE."""
    if report.exit_code == USAGE:
        return "NOT MEASURED"
    if not report.complete:
        return "INCOMPLETE"
    if report.exit_code in INTERRUPTED:
        return "INTERRUPTED"
    if report.outcome is Outcome.FAIL:
        return "FAIL"
    sure = report.outcome in (Outcome.PASS, Outcome.WARN) and report.exit_code == 0
    return "PASS" if sure and judged(report.results) else "UNDECIDED"


def reason(report: Report) -> str:
    """The sentence of the worst result; empty on a pass. Meant for `Report.reason`."""
    result = _speaker(report)
    if result is None or result.outcome is Outcome.PASS:
        return ""
    said = result.outcome
    finding = decisive(result)
    gpu = f" {which}" if (which := which_gpu(finding)) else ""
    sentence = f"{result.check}{gpu}: {seen(finding)}"
    if verdict(report) == "UNDECIDED" and said is not Outcome.ERROR and not judged(report.results):
        return f"nothing was judged; {sentence}"
    return sentence


def _speaker(report: Report) -> Result | None:
    """The result that the verdict is about."""
    said = worst(result.outcome for result in report.results)
    worst_ones = [result for result in report.results if result.outcome is said]
    blockers = {result.blocked_by for result in report.results}
    roots = [result for result in worst_ones if result.check in blockers]
    broken = [result for result in worst_ones if _blames_the_node(result)]
    # A miss that kept others from running comes first, then a broken node. Else the last: checks
    # run from causes to effects, and the effect is what was asked.
    return next(iter([*roots, *broken, *reversed(worst_ones)]), None)


def _blames_the_node(result: Result) -> bool:
    worst_ones = [f for f in result.findings if f.outcome is result.outcome]
    return any(finding.blame is Blame.NODE for finding in worst_ones)


def _fix(report: Report) -> str:
    """The next thing to do, as short as it can be said: the details follow below."""
    result = _speaker(report)
    remedy = decisive(result).remedy if result else None
    return _CLAUSE_END.split(one_line(remedy))[0] if remedy else ""


def closing(report: Report) -> str:
    """The last line: version, start, duration, exit code, thresholds, options that changed it."""
    options = report.settings.options
    flags = [f"--{key.replace('_', '-')}" for key in _SWITCHES if options.get(key)]
    for key in ("check", "skip", "waive"):
        flags += [f"--{key} {one_line(str(item))}" for item in options.get(key) or ()]
    if options.get("exit_on", "any") != "any":
        flags.append(f"--exit-on {one_line(str(options['exit_on']))}")
    parts = [
        f"preflight {report.preflight_version}",
        report.started_at,
        seconds(report.duration_s),
        f"exit code {report.exit_code}",
        f"thresholds {', '.join(report.settings.layers)}" if report.settings.layers else "",
        " ".join(flags),
    ]
    return " | ".join(one_line(part) for part in parts if part)


def _note(report: Report) -> str:
    options, said = report.settings.options, verdict(report)
    if said in ("FAIL", "UNDECIDED") and report.exit_code == 0:
        by = [f"--{key.replace('_', '-')}" for key in _SWITCHES if options.get(key)]
        return f"exit code 0 by {by[0]}" if by else "exit code 0"
    if said == "FAIL" and report.exit_code == UNDECIDED:
        return "exit code 3: no fail blames the node"
    if said == "PASS":
        warnings = _count(report, Outcome.WARN)
        notes = [f"{warnings} warning{'s' * (warnings > 1)}"] if warnings else []
        supplies = [one for one in readings(report) if rate(one, "supply_samples_per_s")]
        if not supplies:
            notes.append("supply not measured")
        # A warm rate alone is the page cache's.
        touched = any(rate(one, FIRST_TOUCH) for one in readings(report))
        if not touched and not any(one.get("data") for one in supplies):
            notes.append("storage not measured")
        workload = report.settings.values.get("workload")
        stated = "dataloader.demand_samples_per_s" in report.settings.values
        if workload is not None and workload.value == "none" and not stated:
            notes.append("no workload named")
        return ", ".join(notes)
    return "" if said in ("FAIL", "UNDECIDED") else f"exit code {report.exit_code}"


def _count(report: Report, outcome: Outcome) -> int:
    return sum(f.outcome is outcome for result in report.results for f in result.findings)
