"""What the checks of a report saw, taken out of the document with nothing taken for granted.

A saved report may be of another hand: what is not of the expected kind counts as absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from preflight.model import Report
from preflight.report.wording import reading_of

Seen = Mapping[str, Any]
FIRST_TOUCH = "first_touch_samples_per_s"
"""A rate that storage itself has given, not a cache."""


def readings(report: Report, check: str | None = None) -> list[Seen]:
    """A check's readings, or those of all: one for each unit that gave one."""
    each: list[Seen] = []
    for result in report.results:
        if check in (None, result.check):
            reading = reading_of(result)
            each += [reading] if isinstance(reading, Mapping) else mappings(reading)
    return each


def mappings(value: Any) -> list[Seen]:
    """The objects in a list."""
    items = value if isinstance(value, (list, tuple)) else ()
    return [item for item in items if isinstance(item, Mapping)]


def figure(seen: Any, key: str) -> float | None:
    """A finite number; None if there is none."""
    value = seen.get(key) if isinstance(seen, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def rate(seen: Seen, key: str) -> float | None:
    """The value of a measured rate, above 0; None if there is none."""
    value = figure(seen.get(key), "value")
    return value if value is not None and value > 0 else None
