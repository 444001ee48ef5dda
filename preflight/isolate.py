"""Runs one request in a process of its own that may hang, crash or be killed.

The parent never waits longer than it said: SIGTERM to the child's group, one second, SIGKILL, two
seconds, then the child is abandoned and named. subprocess.Popen and not multiprocessing, whose
exit handler joins a stuck child for ever. What the child means is not decided here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.ended import Ended, EndKind
from preflight.process_group import end_group, has_exited
from preflight.turns import AtOnce, Turn

# A stuck import of torch (a slow image file system) is not the check's time and not the node's
# fault; cold imports of 20 s and more are seen on network file systems.
START_LIMIT_S = 60.0
OUTPUT_TAIL_BYTES = 64 * 1024
_DRAIN_GRACE_S = 0.5
_TICK_S = 0.05
_MOST_UNREAD = 1000  # messages that one past its time may have left: a flood must not hold us

# The current folder is taken off the path: a user's `queue.py` must not break the gate. The
# package's own folder goes last, for a source tree that is not installed.
_BOOTSTRAP = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv.pop(1)]; "
    "from preflight.child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)


@dataclass
class Stop:
    """Set by a signal handler: whatever runs is to end now, with its reports written."""

    signal: signal.Signals | None = None


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    request_fd: int
    messages: queue.Queue[dict[str, Any] | None] = field(default_factory=queue.Queue)
    output: bytearray = field(default_factory=bytearray)
    threads: tuple[threading.Thread, ...] = ()


def run(
    request: dict[str, Any],
    *,
    timeout_s: float,
    stop: Stop,
    total_s: float = math.inf,
    turn: Turn | None = None,
    inherit: Sequence[int] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> Ended:
    """Run `request` in a child (see `preflight.child`) and say how it ended; never raises for it.

    `timeout_s` counts from when the child, ready, gets its `turn`; getting ready has START_LIMIT_S.
    Everything together, waiting for the others included, never exceeds `total_s`. `inherit` are
    descriptors that it gets beside its own two, under the same numbers.
    """
    turn = turn or AtOnce()
    began = time.monotonic()
    try:
        child = _start(request, inherit)
    except (OSError, RuntimeError) as error:  # no process, no thread, no descriptor left
        turn.leave()
        return Ended("raised", 0.0, text=f"{type(error).__name__}: {error}")
    watched = _Watched(child, turn, began, timeout_s, total_s, on_progress)
    try:
        kind = watched.until_end(stop)
    except BaseException:  # Ctrl-C, or the caller's own function raised
        _finish(child, gently=True)
        raise
    else:
        exit_signal, abandoned = _finish(child, gently=kind in ("timeout", "stopped"))
    finally:
        turn.leave()
    return Ended(
        kind=kind,
        seconds=time.monotonic() - began,
        answer=watched.answer,
        text=watched.text,
        exit_signal=exit_signal,
        last_progress=watched.last_progress,
        ready=watched.ready,
        went=watched.went,
        by_total=watched.by_total,
        output=child.output.decode(errors="replace"),
        abandoned_pid=abandoned,
    )


@dataclass
class _Watched:
    """A child from its start to its end: its messages, its turn, its time."""

    child: _Child
    turn: Turn
    began: float
    timeout_s: float
    total_s: float
    on_progress: Callable[[str], None]
    answer: Any = None
    text: str = ""
    last_progress: str = ""
    ready: bool = False
    went: bool = False
    by_total: bool = False

    def until_end(self, stop: Stop) -> EndKind:
        last = self.began + self.total_s
        deadline, exited, unread = min(self.began + START_LIMIT_S, last), False, _MOST_UNREAD
        while True:
            if stop.signal is not None:
                return "stopped"
            if self.ready and not self.went and self.turn.may_go():
                self.went = True
                deadline = min(time.monotonic() + self.timeout_s, last)
                # The answer it waits for; its thread is done with the request by now.
                _write_all(self.child.request_fd, b"go\n")
            # What it said in time counts, however late we come to read it: first its words, then
            # the clock.
            late = time.monotonic() >= deadline
            unread -= late
            try:
                if unread < 0:
                    raise queue.Empty
                message = self.child.messages.get(timeout=0 if late else _TICK_S)
            except queue.Empty:
                if late:
                    self.by_total = deadline == last
                    return "timeout"
                if exited:
                    return "died"
                exited = has_exited(self.child.process.pid)
                if exited:  # what it said last may still be on its way
                    self.child.threads[0].join(_DRAIN_GRACE_S)
                continue
            if message is None:  # the child closed its side: it is done or dead
                return "died"
            if message["type"] == "ready":
                if not self.ready:
                    self.ready, deadline = True, last
            elif message["type"] == "progress":
                self.last_progress = message["text"]
                self.on_progress(self.last_progress)
            elif message["type"] == "reading":
                self.answer = message["reading"]
            else:
                self.text = message.get("text", "")
                kind: EndKind = message["type"]
                return kind


def _start(request: dict[str, Any], inherit: Sequence[int]) -> _Child:
    request_read, request_write = _pipe()
    message_read, message_write = _pipe()
    package_folder = str(Path(__file__).resolve().parent.parent)
    theirs = (request_read, message_write)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOTSTRAP, package_folder, *map(str, theirs)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(*theirs, *inherit),
            cwd=_working_folder(),
        )
    except OSError:
        os.close(request_write)
        os.close(message_read)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    child = _Child(process, request_write)
    line = json.dumps(request).encode() + b"\n"
    child.threads = (
        threading.Thread(target=_read_messages, args=(child, message_read), daemon=True),
        threading.Thread(target=_drain_output, args=(child,), daemon=True),
        # A request larger than a pipe, to a child that does not read, must not hold us up.
        threading.Thread(target=_write_all, args=(request_write, line), daemon=True),
    )
    try:
        for thread in child.threads:
            thread.start()
    except RuntimeError:
        process.kill()
        process.wait()
        os.close(request_write)
        if child.threads[0].ident is None:  # else it closes what it reads
            os.close(message_read)
        raise
    return child


def _pipe() -> tuple[int, int]:
    """A pipe that Popen does not overwrite: it puts the child's streams on descriptors 0 to 2."""
    ends = os.pipe()
    if min(ends) > 2:
        return ends
    above = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends]
    for end in ends:
        os.close(end)
    return above[0], above[1]


def _working_folder() -> str | None:
    try:
        os.getcwd()
    except FileNotFoundError:  # deleted: torch cannot start there
        return "/"
    return None


def _write_all(fd: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it died at once; the loop will see that
        while data:
            data = data[os.write(fd, data) :]


def _read_messages(child: _Child, message_fd: int) -> None:
    with open(message_fd, "rb") as lines:
        for line in lines:
            # A child killed in the middle of a line leaves half a message.
            with contextlib.suppress(ValueError):
                child.messages.put(json.loads(line))
    child.messages.put(None)


def _drain_output(child: _Child) -> None:
    assert child.process.stdout is not None
    with child.process.stdout as output:
        while chunk := os.read(output.fileno(), 8192):
            child.output += chunk
            del child.output[:-OUTPUT_TAIL_BYTES]


def _finish(child: _Child, *, gently: bool) -> tuple[int | None, int | None]:
    """End the child's whole group. Returns (signal it died of by itself, pid if abandoned)."""
    by_itself, gone = end_group(child.process.pid, gently=gently)
    os.close(child.request_fd)
    if not gone:
        return None, child.process.pid
    code = child.process.wait()
    for thread in child.threads:  # what it printed last is in the pipe
        thread.join(_DRAIN_GRACE_S)
    return (-code if by_itself and code < 0 else None), None
