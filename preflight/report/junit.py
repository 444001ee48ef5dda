"""JUnit XML in the subset that every common reader takes: one testsuite, one case per finding.

junit-xml builds the cases; what it gets wrong is mended here and nowhere else: it leaves out a
time of 0 and the root's name and skipped count, writes nan, lets a failure without a message turn
green, and passes characters that XML refuses. A run that is not a pass never looks green.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any
from xml.etree import ElementTree

from junit_xml import TestCase, TestSuite

from preflight.model import Finding, Report, Result
from preflight.outcome import Outcome
from preflight.report.feed_lines import feed_lines
from preflight.report.headline import headline
from preflight.report.lines import laid_out
from preflight.report.readings import mappings
from preflight.report.text import clean, last_lines, one_line
from preflight.report.wording import entries, explanation, lowered, name, reading_of, seen

OUTPUT_LINES = 20
COUNTS = ("tests", "failures", "errors", "skipped")


def render(report: Report) -> bytes:
    """The document, UTF-8 with a declaration."""
    cases = _distinct([case for result in report.results for case in _result_cases(result)])
    _tell_of_the_feed(cases, laid_out(feed_lines(report)))
    red = any(case.is_failure() or case.is_error() for case in cases)
    bad = report.exit_code != 0 or report.outcome in (Outcome.FAIL, Outcome.ERROR)
    if not report.complete or not cases or (bad and not red):
        cases.append(_run_case(report))
    suite = TestSuite(
        one_line(report.node.name) or "unknown node",
        cases,
        hostname=one_line(report.node.hostname) or "unknown host",
        timestamp=_timestamp(report.started_at),
        properties=_properties(report),
    ).build_xml_doc()
    root = ElementTree.Element("testsuites", {"name": "preflight"})
    root.append(suite)
    suite.attrib.pop("disabled")  # always 0, and outside the common subset
    for element in (suite, root):
        element.attrib |= {count: suite.attrib[count] for count in COUNTS}
        element.set("time", _time(report.duration_s))
    for case, element in zip(cases, suite.iter("testcase"), strict=True):
        element.set("time", _time(case.elapsed_sec))
    ElementTree.indent(root)
    document = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return bytes(document) + b"\n"


def _result_cases(result: Result) -> Iterator[TestCase]:
    reading = reading_of(result)
    for position, finding in enumerate(entries(result)):
        subject = f" [{finding.subject}]" if finding.subject else ""
        yield _case(
            f"preflight.{result.check}",
            name(finding, result.check) + subject,
            finding.outcome,
            sentence=seen(finding, reading),
            details=_details(result, finding),
            values=_values(finding),
            elapsed_s=result.duration_s if position == 0 else 0.0,
        )


def _run_case(report: Report) -> TestCase:
    """The case of the run itself, where no finding says that it is not a pass."""
    return _case("preflight", "run", Outcome.ERROR, sentence=headline(report))


def _case(
    classname: str,
    name: str,
    outcome: Outcome,
    *,
    sentence: str,
    details: str = "",
    values: str = "",
    elapsed_s: float = 0.0,
) -> TestCase:
    message = one_line(sentence) or str(outcome)
    text = f"{message}\n{details}".strip()
    case = TestCase(one_line(name) or "finding", one_line(classname), elapsed_s)
    if outcome is Outcome.FAIL:
        case.add_failure_info(message, text)
    elif outcome is Outcome.ERROR:
        case.add_error_info(message, text)
    elif outcome is Outcome.SKIP:
        case.add_skipped_info(message, text)
    elif outcome is Outcome.WARN:
        case.stdout = f"warning: {text}\n{values}".strip()
    else:
        case.stdout = values
    return case


def _tell_of_the_feed(cases: list[TestCase], feed: list[str]) -> None:
    """Put the lines first in what the case of the supply printed, else in the loader's first."""
    ours = [case for case in cases if case.classname == "preflight.dataloader"]
    supply = [case for case in ours if case.name.split(" ")[0] == "supply"]
    if feed and ours:
        case = (supply or ours)[0]
        case.stdout = "\n".join([*feed, case.stdout or ""]).rstrip()


def _details(result: Result, finding: Finding) -> str:
    lines = [f"{label}: {clean(text)}" for label, text in explanation(finding)]
    note = lowered(finding, result.required)
    if note:
        lines.append(f"note: {note}")
    if result.partial:
        lines.append("note: the measurement was cut off before its end")
    if result.output and finding.outcome in (Outcome.FAIL, Outcome.ERROR):
        lines += ["last lines printed:", last_lines(result.output, OUTPUT_LINES)]
    return "\n".join(lines)


def _values(finding: Finding) -> str:
    """What was compared, for machines: key=value, numbers unrounded."""
    record = finding.model_dump(mode="json", include={"observed", "comparison", "limit", "unit"})
    return "\n".join(f"{key}={_raw(value)}" for key, value in record.items() if value is not None)


def _properties(report: Report) -> dict[str, str]:
    """The verdict, and every number of every reading under its own key."""
    properties = {
        "exit_code": str(report.exit_code),
        "outcome": str(report.outcome),
        "complete": _raw(report.complete),
        "version": one_line(report.preflight_version),
    }
    for result in report.results:
        for key, value in _numbers(result.check, reading_of(result)):
            properties[one_line(key) or "reading"] = _raw(value)
    return properties


def _numbers(path: str, value: Any) -> Iterator[tuple[str, int | float]]:
    """Numbers in a reading; a rate stands for its value, and series are left out but for stages."""
    if isinstance(value, Mapping):
        if "value" in value and "unit" in value:
            yield from _numbers(path, value["value"])
            return
        for key, item in value.items():
            if key == "stages":
                for stage in mappings(item):
                    yield from _numbers(f"{path}.{key}.{stage.get('name')}", stage)
            elif not isinstance(item, (list, tuple)):
                yield from _numbers(f"{path}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            if isinstance(item, Mapping):
                yield from _numbers(f"{path}[{position}]", item)
    elif type(value) is int or (isinstance(value, float) and math.isfinite(value)):
        yield path, value


def _distinct(cases: list[TestCase]) -> list[TestCase]:
    """Give every (classname, name) a number where it would repeat: readers drop the second."""
    taken: set[tuple[str, str]] = set()
    for case in cases:
        plain, count = case.name, 1
        while (case.classname, case.name) in taken:
            count += 1
            case.name = f"{plain} #{count}"
        taken.add((case.classname, case.name))
    return cases


def _raw(value: Any) -> str:
    return one_line(value) if isinstance(value, str) else json.dumps(value)


def _time(duration_s: float) -> str:
    return f"{max(0.0, duration_s):.6f}"


def _timestamp(started_at: str) -> str | None:
    """UTC without an offset, which is how readers take it; None if it is not a time."""
    try:
        started = datetime.fromisoformat(started_at.replace("Z", "+00:00"))
        if started.tzinfo is not None:
            started = started.astimezone(timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return started.isoformat(timespec="seconds")
