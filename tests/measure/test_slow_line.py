"""The line of the job's own code that a worker is most often seen in."""

from __future__ import annotations

import sysconfig
import threading
import time
from types import FrameType

import pytest

from preflight.measure.counters import Counters
from preflight.measure.slow_line import line_of, watch_lines

pytestmark = pytest.mark.timeout(30)


def frame(file: str, line: int = 1) -> FrameType:
    """A frame as of code in that file."""
    code = compile("\n" * (line - 1) + "import sys\nfound = sys._getframe()", file, "exec")
    names: dict[str, FrameType] = {}
    exec(code, names)
    return names["found"]


def test_files_of_the_job_go_before_what_is_installed() -> None:
    stdlib = sysconfig.get_path("stdlib")
    assert line_of(None) is None
    assert line_of(frame("/job/data.py", line=6)) == "/job/data.py:7"
    installed = "/usr/lib/python3/site-packages/pkg/data.py"
    # The frames behind it are this test's own, and those of pytest.
    for theirs in (installed, f"{stdlib}/json/decoder.py"):
        assert (line_of(frame(theirs)) or "").startswith(f"{__file__}:")


def line_here(text: str) -> int:
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if text in line)


def test_a_worker_is_told_where_it_was_seen() -> None:
    counters = Counters.create(1)
    slot, go_on = counters.slot(0), True

    def work() -> None:
        watch_lines(slot)
        while go_on:
            slot.enter_getitem(1)
            time.sleep(0.02)  # here
            slot.enter_getitem(0)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while counters.read()[0].line is None and time.monotonic() < until:
        time.sleep(0.05)
    go_on = False
    thread.join(5)
    assert counters.read()[0].line == f"{__file__}:{line_here('# here')}"
    assert counters.read()[0].corrupt_names == ()
