"""Which line of the job's own data set a worker spends its time in, looked up now and then.

A thread of the worker asks the interpreter where the loading thread stands, twenty times a second:
some fifty microseconds each. Only for --dataset: of our own data set the stages say more.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from types import FrameType

from preflight.measure.counters import Slot
from preflight.user_code import is_installed, is_own

_EVERY_S = 0.05
_SAY_EVERY = 10  # looks


def watch_lines(slot: Slot) -> None:
    """Begin to look at the calling thread; the slot is told what was found."""
    threading.Thread(target=_watch, args=(slot, threading.get_ident()), daemon=True).start()


def line_of(frame: FrameType | None) -> str | None:
    """file:line of the innermost frame of the job's own code, else of what is installed."""
    installed = None
    while frame is not None:
        file = frame.f_code.co_filename
        if is_own(file):
            return f"{file}:{frame.f_lineno}"
        if installed is None and is_installed(file):
            installed = f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return installed


def _watch(slot: Slot, thread: int) -> None:
    seen: Counter[str] = Counter()
    while True:
        time.sleep(_EVERY_S)
        if slot.phase() != "getitem":
            continue
        line = line_of(sys._current_frames().get(thread))
        if line is not None:
            seen[line] += 1
            if seen.total() % _SAY_EVERY == 0:
                slot.say_line(seen.most_common(1)[0][0])
