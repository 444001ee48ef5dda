"""The report for a CI job summary (GitHub's Markdown): verdict, feed, table, what to do about it.

Text from the machine can neither break the table nor become a link, an image or HTML.
"""

from __future__ import annotations

import re

from preflight.model import Finding, Report, Result
from preflight.outcome import Outcome
from preflight.report.feed_lines import feed_lines
from preflight.report.headline import closing, headline
from preflight.report.lines import laid_out
from preflight.report.numbers import seconds
from preflight.report.text import last_lines, one_line
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
FEED_WIDTH = 100  # a code block is not broken: it scrolls
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def render(report: Report) -> bytes:
    """The summary, UTF-8."""
    lines = [f"### {_escape(headline(report))}", ""]
    if feed := laid_out(feed_lines(report), FEED_WIDTH):
        lines += [*_fenced("\n".join(feed)), ""]
    if report.results:
        lines += ["| check | outcome | seen | time |", "|---|---|---|---:|"]
        lines += [_row(result) for result in report.results]
        lines.append("")
    for result in worst_first(report):
        for group in alike(result):
            lines += _details(result, group)
        if result.output and result.outcome in (Outcome.FAIL, Outcome.ERROR):
            lines += _output(result.check, result.output)
    lines += [f"- note: {_escape(warning)}\n" for warning in report.settings.warnings]
    lines += [f"<sub>{_escape(closing(report))}</sub>", ""]
    return "\n".join(lines).encode()


def _row(result: Result) -> str:
    strong = "**" if result.outcome in (Outcome.FAIL, Outcome.ERROR) else ""
    cells = (
        _escape(result.check),
        f"{strong}{result.outcome}{strong}",
        _escape(row(result)),
        seconds(result.duration_s),
    )
    return f"| {' | '.join(cells)} |"


def _details(result: Result, group: list[Finding]) -> list[str]:
    lines = []
    for finding in group:
        sentence = _escape(f"{title(finding)}: {seen(finding, reading_of(result))}")
        lines += [f"**{finding.outcome}** {sentence}", ""]
    lines += [f"- **{label}** {_escape(text)}" for label, text in explanation(group[0])]
    note = lowered(group[0], result.required)
    if note:
        lines.append(f"- **note** {_escape(note)}")
    return [*lines, ""]


def _output(check: str, output: str) -> list[str]:
    block = _fenced(last_lines(output, OUTPUT_LINES))
    summary = f"<summary>last lines that {_escape(check)} printed</summary>"
    return [f"<details>{summary}", "", *block, "", "</details>", ""]


def _fenced(text: str) -> list[str]:
    """A fenced block, its fence longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", text, fence]


def _escape(text: str) -> str:
    """One line that Markdown shows as it is."""
    text = re.sub("[&<>]", lambda match: _ENTITIES[match.group()], one_line(text))
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", text)
