"""Labelled lines of plain text in columns, as a terminal or a fenced block shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from preflight.report.numbers import number

LABEL_WIDTH = 7


class Line(NamedTuple):
    """One line; where it has to be broken, it goes on `hang` columns into its text."""

    label: str
    text: str
    hang: int = 0


def in_columns(
    rows: Sequence[tuple[str, float, str]], unit: str, label: str = ""
) -> Iterator[Line]:
    """A name, a number of the unit and a note to a row; a note goes on in its own column."""
    names = max((len(name) for name, _, _ in rows), default=0)
    digits = max((len(number(value)) for _, value, _ in rows), default=0)
    for name, value, note in rows:
        row = f"{name:{names}}   {number(value):>{digits}} {unit}   "
        yield Line(label, (row + note).rstrip(), len(row))
        label = ""


def laid_out(lines: Iterable[Line], width: int | None = None) -> list[str]:
    """The lines as text, broken at `width` columns where one is given."""
    rows = []
    for label, text, hang in lines:
        row = f"{label:{LABEL_WIDTH - 1}} {text}"
        if width is None:
            rows.append(row)
            continue
        room = max(width, 2 * LABEL_WIDTH)
        inset = LABEL_WIDTH + (hang if 2 * hang < room else 0)
        rows += textwrap.wrap(row, room, subsequent_indent=" " * inset, break_on_hyphens=False)
    return rows
