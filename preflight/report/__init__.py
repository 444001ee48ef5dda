"""Reports: one file per format, each a function from a finished Report to bytes.

The document in `json_report` is the record; the other formats are drawn from the same Report and
decide nothing. A format's libraries are imported when it is first rendered, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from preflight.model import Report


class Render(Protocol):
    """Draws one format, UTF-8; only `table` takes options (width in columns, color)."""

    def __call__(self, report: Report, **options: Any) -> bytes:
        """The whole document."""


def _lazy(module: str) -> Render:
    def render(report: Report, **options: Any) -> bytes:
        document: bytes = import_module(f"preflight.report.{module}").render(report, **options)
        return document

    return render


FORMATS: Mapping[str, Render] = {
    "table": _lazy("table"),
    "json": _lazy("json_report"),
    "junit": _lazy("junit"),
    "markdown": _lazy("markdown"),
}
"""Every value of --format."""
