"""The report as HTML for a notebook's cell: verdict, feed, table, what to do about it.

Elements are built, never written as text, so that nothing from the machine becomes markup. Styles
stand on the elements, since notebooks drop style sheets, and leave the background to the theme.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, tostring

from preflight.model import Finding, Report, Result
from preflight.outcome import Outcome
from preflight.report.feed_lines import feed_lines
from preflight.report.headline import closing, headline, verdict
from preflight.report.lines import laid_out
from preflight.report.numbers import seconds
from preflight.report.text import clean, last_lines, one_line
from preflight.report.wording import (
    alike,
    explanation,
    lowered,
    reading_of,
    row,
    seen,
    title,
    worst_first,
)

OUTPUT_LINES = 20
# Of a lightness that can be read on white and on black.
_GREEN, _AMBER, _RED, _VIOLET, _GREY = "#2e8b40", "#b8740a", "#d9362b", "#a64fc0", "#808080"
_COLORS = {
    Outcome.PASS: _GREEN,
    Outcome.WARN: _AMBER,
    Outcome.FAIL: _RED,
    Outcome.SKIP: _GREY,
    Outcome.ERROR: _VIOLET,
}
_VERDICT_COLORS = {"PASS": _GREEN, "FAIL": _RED}
_CELL = "padding: 0.1em 1.2em 0.1em 0; vertical-align: top; white-space: pre-wrap; text-align: "
_LABEL = "left; min-width: 5em"
_FEED = "margin: 0.5em 0; white-space: pre-wrap"
_TABLE = "border-collapse: collapse; margin: 0.5em 0"


def render(report: Report, *, explain: bool = False) -> bytes:
    """One div, UTF-8, well-formed as XML too; with `explain` passes have their details."""
    page = Element("div")
    said = verdict(report)
    line = SubElement(page, "div")
    strong = _add(line, "strong", said, f"color: {_VERDICT_COLORS.get(said, _VIOLET)}")
    strong.tail = one_line(headline(report)).removeprefix(said)
    if feed := laid_out(feed_lines(report)):
        _add(page, "pre", "\n".join(feed), _FEED)
    if report.results:
        _rows(SubElement(page, "table", style=_TABLE), report)
    for result in worst_first(report):
        for group in [[f] for f in result.findings] if explain else alike(result):
            _details(SubElement(page, "table", style=_TABLE), result, group)
        if result.output and result.outcome in (Outcome.FAIL, Outcome.ERROR):
            folded = SubElement(page, "details")
            _add(folded, "summary", f"last lines that {one_line(result.check)} printed")
            _add(folded, "pre", last_lines(result.output, OUTPUT_LINES))
    for warning in report.settings.warnings:
        _add(page, "div", f"note: {one_line(warning)}")
    _add(page, "small", closing(report), f"color: {_GREY}")
    return tostring(page, encoding="unicode", method="html").encode()


def _rows(table: Element, report: Report) -> None:
    head = SubElement(table, "tr")
    for name in ("check", "outcome", "seen"):
        _cell(head, name, _GREY)
    _cell(head, "time", _GREY, align="right")
    for result in report.results:
        cells = SubElement(table, "tr")
        _cell(cells, one_line(result.check))
        _cell(cells, str(result.outcome), _COLORS[result.outcome])
        _cell(cells, one_line(row(result)))
        _cell(cells, seconds(result.duration_s), align="right")


def _details(table: Element, result: Result, group: list[Finding]) -> None:
    for finding in group:
        cells = SubElement(table, "tr")
        _cell(cells, str(finding.outcome), _COLORS[finding.outcome], _LABEL)
        _cell(cells, one_line(f"{title(finding)}: {seen(finding, reading_of(result))}"))
    notes = explanation(group[0])
    note = lowered(group[0], result.required)
    for label, text in [*notes, ("note", note)] if note else notes:
        cells = SubElement(table, "tr")
        _cell(cells, label, _GREY, _LABEL)
        _cell(cells, clean(text))


def _cell(row: Element, text: str, color: str = "inherit", align: str = "left") -> None:
    _add(row, "td", text, f"{_CELL}{align}; color: {color}")


def _add(parent: Element, tag: str, text: str, style: str = "") -> Element:
    element = SubElement(parent, tag, {"style": style} if style else {})
    element.text = text
    return element
