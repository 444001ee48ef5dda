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

_VARIABLE = "PREFLIGHT_REPORT_DIR"
_OPTION = "--report-dir"


def leave_report(
    line: str, arguments: Sequence[str], environ: Mapping[str, str], code: int = 3
) -> None:
    """Write preflight.json and preflight.xml where the run was told to; silent where it was not."""
    folder = _folder(arguments, environ)
    if folder is None:
        return
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    delivery = Delivery(folder)
    try:
        delivery.wait_ready()
        delivery.write({"preflight.json": _json(line, now, code), "preflight.xml": _xml(line, now)})
    except Undeliverable:
        return
    finally:
        delivery.close()


def _folder(arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    for place, argument in enumerate(arguments):
        if argument == _OPTION and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{_OPTION}="):
            return argument.partition("=")[2]
    return environ.get(_VARIABLE) or None


def _json(line: str, now: str, code: int) -> bytes:
    name = socket.gethostname()
    document = {
        "schema_version": "1.0",
        "preflight_version": __version__,
        "complete": True,
        "outcome": "error",
        "exit_code": code,
        "reason": line,
        "started_at": f"{now}Z",
        "duration_s": 0.0,
        "node": {"name": name, "name_from": "host name", "hostname": name},
        "facts": {},
        "settings": {"layers": [], "options": {}, "warnings": [], "values": {}},
        "results": [],
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def _xml(line: str, now: str) -> bytes:
    printable = "".join(
        c for c in line if c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe"
    )
    name, message = quoteattr(socket.gethostname()), quoteattr(printable)
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
