"""The report of a run that could not even start: standard library only.

It replaces what an earlier run left in the report folder, so that nobody reads an old pass.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from xml.sax.saxutils import escape, quoteattr

from preflight import __version__
from preflight.deliver import Delivery, Undeliverable

# Commands that only look leave the reports of the last run alone.
_LOOKING = ("checks", "explain", "info", "thresholds", "report", "--help", "-h", "--version")
_VARIABLE = "PREFLIGHT_REPORT_DIR"
_OPTION = "--report-dir"


def leave_report(
    line: str, arguments: Sequence[str], environ: Mapping[str, str], code: int = 3
) -> None:
    """Write preflight.json and preflight.xml where the run was told to; silent where it was not."""
    folder = _folder(arguments, environ)
    if folder is None or (arguments and arguments[0] in _LOOKING):
        return
    node = environ.get("NODE_NAME") or environ.get("SLURMD_NODENAME") or socket.gethostname()
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    delivery = Delivery(folder)
    try:
        delivery.wait_ready()
        delivery.write(
            {"preflight.json": _json(line, node, now, code), "preflight.xml": _xml(line, node, now)}
        )
    except Undeliverable:
        return
    finally:
        delivery.close()


def _folder(arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    named = None
    for place, argument in enumerate(arguments):
        if argument == "--":
            break  # what follows is a command's
        if argument == _OPTION:
            named = next(iter(arguments[place + 1 : place + 2]), None)
        elif argument.startswith(f"{_OPTION}="):
            named = argument.partition("=")[2]
    if named is not None:
        return named or None
    return environ.get(_VARIABLE) or None


def _json(line: str, node: str, now: str, code: int) -> bytes:
    document = {
        "schema_version": "1.0",
        "preflight_version": __version__,
        "complete": True,
        "outcome": "error",
        "exit_code": code,
        "reason": line,
        "started_at": f"{now}Z",
        "duration_s": 0.0,
        "node": {"name": node, "name_from": "environment", "hostname": socket.gethostname()},
        "facts": {},
        "settings": {"layers": [], "options": {}, "warnings": [], "values": {}},
        "results": [],
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def _xml(line: str, node: str, now: str) -> bytes:
    printable = "".join(
        c for c in line if c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe"
    )
    name, message = quoteattr(node), quoteattr(printable)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<testsuites name="preflight" tests="1" failures="0" errors="1" skipped="0" '
        'time="0.000000">'
        f'<testsuite name={name} hostname={name} timestamp="{now}" tests="1" failures="0" '
        'errors="1" skipped="0" time="0.000000">'
        '<testcase classname="preflight" name="run" time="0.000000">'
        f'<error type="error" message={message}>{escape(printable)}</error>'
        "</testcase></testsuite></testsuites>\n"
    ).encode()
