"""Pressure stall information: how much of the last ten seconds something waited for a resource.

The whole machine's files come first: before we have started anything, our own cgroup waits for
nothing, while the machine's files tell of neighbours.
"""

from __future__ import annotations

import re

from preflight.facts import Pressure
from preflight.machine.cgroup import Cgroups
from preflight.machine.kernel_text import number
from preflight.machine.root import Root

_SOME_AVG10 = re.compile(r"^some avg10=(\S+)", re.MULTILINE)


def read_pressure(root: Root, cgroups: Cgroups) -> Pressure:
    """The "some avg10" in percent, of the machine or else of our own cgroup."""

    def avg10(resource: str) -> float | None:
        value = parse_avg10(root.read_text(f"/proc/pressure/{resource}"))
        hierarchy = cgroups.get("memory" if resource == "io" else resource)
        if value is None and hierarchy is not None and hierarchy.version == 2:
            return parse_avg10(root.read_text(f"{hierarchy.dirs[0]}/{resource}.pressure"))
        return value

    return Pressure(cpu=avg10("cpu"), memory=avg10("memory"), io=avg10("io"))


def parse_avg10(text: str | None) -> float | None:
    """avg10 of the "some" line (Documentation/accounting/psi.rst), in percent."""
    match = _SOME_AVG10.search(text or "")
    return number(match[1]) if match else None
