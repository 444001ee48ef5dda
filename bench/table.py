"""A measured number held against its bound, and the table they are printed in. Pure.

A row without a bound is information. A row without a number could not be measured: it counts as
broken, because a number that nobody saw is not a number reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

HEADER = f"{'number':46} {'bound':14} {'seen':>10}  ok   note"


@dataclass(frozen=True)
class Row:
    """One line of the table; `unit` belongs to the number and to both bounds."""

    number: str
    seen: float | None
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether the bound holds; None where there is none to hold."""
        if self.seen is None:
            return False
        if self.at_least is None and self.at_most is None:
            return None
        above = self.at_least is None or self.seen >= self.at_least
        return above and (self.at_most is None or self.seen <= self.at_most)


def line(row: Row) -> str:
    """The row as a line under HEADER."""
    seen = "-" if row.seen is None else _with_unit(row.seen, row.unit)
    ok = {True: "yes", False: "NO", None: ""}[row.ok]
    return f"{row.number:46} {bound(row):14} {seen:>10}  {ok:4} {row.note}".rstrip()


def bound(row: Row) -> str:
    """The bound in words, empty where there is none."""
    if row.at_least is not None and row.at_most is not None:
        return f"{row.at_least:g} to {_with_unit(row.at_most, row.unit)}"
    if row.at_least is not None:
        return f">= {_with_unit(row.at_least, row.unit)}"
    return "" if row.at_most is None else f"<= {_with_unit(row.at_most, row.unit)}"


def broken(rows: Iterable[Row]) -> int:
    """How many rows miss their bound."""
    return sum(row.ok is False for row in rows)


def ratio_of_medians(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Our median as a share of theirs: one odd turn on a noisy machine does not move it."""
    return median(ours) / median(theirs)


def spread(values: Sequence[float]) -> str:
    """Lowest, median and highest, for a note."""
    low, middle, high = min(values), median(values), max(values)
    return f"{low:,.4g} .. {middle:,.4g} .. {high:,.4g}"


def _with_unit(value: float, unit: str) -> str:
    return f"{value:,.4g} {unit}".rstrip()
