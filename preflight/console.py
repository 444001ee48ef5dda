"""Standard output and standard error: pages, the verdict, complaints.

A closed or full standard output is said on standard error; the verdict's exit code survives it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from preflight import exit_code

if TYPE_CHECKING:
    from preflight.model import Report


def page(make: Callable[[], str]) -> int:
    """Print what `make` returns; wrong input is exit 2 with its own words."""
    from preflight.plan import UsageError
    from preflight.settings.tree import SettingsError

    try:
        text = make()
    except (UsageError, SettingsError) as error:
        complain(str(error))
        return exit_code.USAGE
    try:
        write(text)
    except OSError as error:
        complain(f"standard output is lost ({error.strerror}); nothing is decided by that")
        return exit_code.UNDECIDED
    return exit_code.PASS


def show_verdict(report: Report, format: str, *, quiet: bool, color: bool, explain: bool) -> None:
    """Print the verdict. A lost standard output is said on standard error; the code stays."""
    from preflight.report import FORMATS as RENDER
    from preflight.report.headline import headline

    line = f"{headline(report)}\n"
    wrong_usage = report.exit_code == exit_code.USAGE
    if wrong_usage:
        complain(report.reason or "")
    try:
        if format == "table" and (quiet or wrong_usage):
            write("" if wrong_usage else line)
        elif format == "table":
            write(RENDER["table"](report, **table_options(color, explain)).decode())
        else:
            write(RENDER[format](report).decode())
    except OSError as error:
        complain(f"standard output is lost ({error.strerror}): {line}")
    except Exception as error:  # a fault in a page must not cost the verdict
        complain(f"--format {format} failed ({type(error).__name__}: {error})")
        complain(line)


def table_options(color: bool, explain: bool) -> dict[str, Any]:
    """How the table is drawn here."""
    return {
        "width": shutil.get_terminal_size((100, 24)).columns,
        "color": color,
        "explain": explain,
    }


def colored(no_color: bool) -> bool:
    """Whether standard output takes colours (https://no-color.org)."""
    plain = no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def write(text: str) -> None:
    """Write to standard output, all of it, now. Raises OSError when it is closed or full."""
    sys.stdout.buffer.write(text.encode(errors="replace"))
    sys.stdout.flush()


def complain(text: str) -> None:
    """Lines on standard error; where there is none, the exit code still speaks."""
    with contextlib.suppress(OSError):
        for line in text.splitlines():
            sys.stderr.write(f"preflight: {line}\n")
        sys.stderr.flush()
