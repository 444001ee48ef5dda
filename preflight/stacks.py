"""Where a process stood, by the text that faulthandler leaves: the line of the job's own code.

Standard library only, no measuring: the parent asks of what a child has printed, the child of what
its workers have noted.
"""

from __future__ import annotations

import linecache
import re

from preflight.user_code import is_installed, is_own

_HEADING = re.compile(r"^(?:Stack|(?:Current t|T)hread 0x).*\(most recent call first\):$", re.M)
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+) in (\S+)', re.M)
_MOST_CODE = 60

Frame = tuple[str, int, str]
"""File, line, function."""


def frames(text: str) -> list[Frame]:
    """The last stack in a text, innermost frame first."""
    _, *stacks = _HEADING.split(text)
    found: list[Frame] = []
    for line in (stacks or [""])[-1].lstrip("\n").splitlines():
        match = _FRAME.match(line)
        if match is None:
            break
        found.append((match[1], int(match[2]), match[3]))
    return found


def place(text: str) -> str | None:
    """E.g. "/job/data.py, line 17 (time.sleep(9)), in __getitem__"; None: not in the job's code."""
    stack = frames(text)
    for belongs in (is_own, is_installed):
        for file, line, function in stack:
            if belongs(file):
                code = " ".join(linecache.getline(file, line).split())
                shown = f" ({code})" if code and len(code) <= _MOST_CODE else ""
                return f"{file}, line {line}{shown}, in {function}"
    return None
