"""The page on the terminal: verdict, feed, one row per check, then what to do about it.

Plain text without colour; nothing from the machine is read as markup or obeyed as an escape.
"""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

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

STYLES = {
    Outcome.PASS: "green",
    Outcome.WARN: "yellow",
    Outcome.FAIL: "bold red",
    Outcome.SKIP: "dim",
    Outcome.ERROR: "bold magenta",
}
VERDICT_STYLES = {"PASS": "bold green", "FAIL": "bold red"}
LABEL_WIDTH = 10  # "limit from"
OUTPUT_LINES = 10


def render(
    report: Report, *, width: int = 100, color: bool = False, explain: bool = False
) -> bytes:
    """The page, `width` columns wide, UTF-8; with `explain` passes have their details too."""
    page = StringIO()
    console = Console(
        file=page, width=width, no_color=not color,
        color_system="standard" if color else None, markup=False, emoji=False, highlight=False,
    )  # fmt: skip
    console.print(Text(headline(report), VERDICT_STYLES.get(verdict(report), "bold magenta")))
    if feed := laid_out(feed_lines(report), width):
        console.print()
        console.print(Text("\n".join(feed)))
    if report.results:
        console.print()
        console.print(_rows(report))
    for result in worst_first(report):
        for group in [[f] for f in result.findings] if explain else alike(result):
            console.print()
            console.print(_details(result, group))
        if result.output and result.outcome in (Outcome.FAIL, Outcome.ERROR):
            console.print()
            console.print(_output(result.check, result.output))
    console.print()
    for warning in report.settings.warnings:
        console.print(f"note: {one_line(warning)}")
    console.print(Text(closing(report), "dim"))
    text = page.getvalue()
    if not color:
        text = "".join(f"{line.rstrip()}\n" for line in text.split("\n")[:-1])
    return text.encode()


def _rows(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("check", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("seen", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    for result in report.results:
        table.add_row(
            one_line(result.check),
            Text(str(result.outcome), STYLES[result.outcome]),
            one_line(row(result)),
            seconds(result.duration_s),
        )
    return table


def _details(result: Result, group: list[Finding]) -> Table:
    grid, first = _grid(), group[0]
    for finding in group:
        sentence = f"{title(finding)}: {seen(finding, reading_of(result))}"
        grid.add_row(Text(str(finding.outcome), STYLES[finding.outcome]), one_line(sentence))
    for label, text in explanation(first):
        grid.add_row(label, clean(text))
    note = lowered(first, result.required)
    if note:
        grid.add_row("note", note)
    return grid


def _output(check: str, output: str) -> Table:
    grid = _grid()
    grid.add_row("printed", f"by {one_line(check)}, the last lines:")
    grid.add_row("", last_lines(output, OUTPUT_LINES))
    return grid


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=LABEL_WIDTH)
    grid.add_column(overflow="fold")
    return grid
