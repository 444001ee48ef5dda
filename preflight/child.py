"""What runs in an isolated process: one request in, JSON lines out, then the end.

Requests: {"task": "observe", ...} runs one unit of a check; {"task": "look", ...} takes a first
look at a data path; {"task": "inventory", ...} asks NVML for the GPUs; {"task": "dataset", ...}
imports the module of --dataset. A child that says "ready" waits for the parent's "go". A child
whose parent is gone ends its own group and removes its folder, so that a killed gate leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any

from preflight.scratch import Scratch

_ORPHAN_GRACE_S = 0.5


class Channel:
    """JSON lines to the parent, from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self.go = threading.Event()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; a parent that is gone is the watcher's business."""
        line = json.dumps({"type": kind, **fields}).encode() + b"\n"
        with self._lock, contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._fd, line) :]

    def ready(self) -> None:
        """Say so, and wait until the parent says go."""
        self.send("ready")
        self.go.wait()


def main(request_fd: int, message_fd: int) -> None:
    """Serve one request and exit; never returns."""
    # Inherited from whoever called `preflight.run`: ignored, it hides our workers' ends.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # as in the command's guard
    for fd in (request_fd, message_fd):
        os.set_inheritable(fd, False)
    channel = Channel(message_fd)
    with open(request_fd, "rb", closefd=False) as requests:
        request = json.loads(requests.readline())  # nothing is behind it before we are ready
    os.environ.update(request.get("environment", {}))
    scratch = Scratch(request["scratch"])
    watch = threading.Thread(
        target=_end_with_parent, args=(request_fd, channel, scratch), daemon=True
    )
    watch.start()
    try:
        _TASKS[request["task"]](request, channel, scratch)
    except BaseException as error:  # the parent has to hear of every end, SystemExit included
        traceback.print_exc()
        channel.send("raised", text=f"{type(error).__name__}: {error}")
    scratch.remove()
    # Standard output is the parent's pipe; nothing may be lost with os._exit, which is needed
    # because a normal exit joins threads and workers that may be stuck.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def _end_with_parent(request_fd: int, channel: Channel, scratch: Scratch) -> None:
    # The parent holds the other end and writes nothing but "go": a read that gives nothing says
    # that it is gone.
    while os.read(request_fd, 16):
        channel.go.set()
    group = os.getpgrp()
    if os.fork() == 0:
        # From outside the group, so that the workers' resource tracker, which survives SIGTERM,
        # has its moment to unlink semaphores before everything is killed.
        os.setsid()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)
            time.sleep(_ORPHAN_GRACE_S)
            os.killpg(group, signal.SIGKILL)
        scratch.remove()
        os._exit(0)


def _observe(request: dict[str, Any], channel: Channel, scratch: Scratch) -> None:
    # Imported here: a look at a path must not pay for pydantic.
    from preflight import checks, facts, job
    from preflight.checks.contract import Failed, Unavailable, Unit
    from preflight.machine.root import host
    from preflight.roster import Roster

    _own_temporary_folder(scratch)
    check = checks.load(request["check"])
    rank, roster = request["rank"], None
    if request["roster"] is not None:
        roster = Roster.inherited(request["roster"], request["ranks"], rank)
        os.set_inheritable(request["roster"], False)
    unit = Unit(
        subject=request["subject"],
        machine=host(),
        limits=check.limits.model_validate(request["limits"], strict=False),
        job=job.Job.model_validate(request["job"], strict=False),
        facts=facts.Facts.model_validate(request["facts"]),
        earlier=request["earlier"],
        scratch=scratch,
        emit=lambda reading: channel.send("reading", reading=reading.model_dump(mode="json")),
        progress=lambda text: channel.send("progress", text=text),
        ready=channel.ready,
        rank=rank,
        roster=roster,
    )
    try:
        reading = check.observe(unit)
    except Unavailable as reason:
        channel.send("unavailable", text=str(reason))
        return
    except Failed as failed:
        channel.send("raised", text=str(failed))
        return
    unit.emit(reading)
    channel.send("done")


def _own_temporary_folder(scratch: Scratch) -> None:
    """Workers that are killed leave their sockets' folders behind: in ours they go with it."""
    folder = scratch.make()
    if folder is not None:
        os.environ["TMPDIR"] = str(folder)


def _look(request: dict[str, Any], channel: Channel, scratch: Scratch) -> None:
    from preflight.data.image_folder import look
    from preflight.machine.mounts import file_system_of, read_mounts, writable_at
    from preflight.machine.root import host

    channel.ready()
    path, writable, on = request["path"], None, None
    state = look(path, request["codec"])
    if state == "ok":
        real = os.path.realpath(path)
        writable = writable_at(host(), real)
        found = file_system_of(read_mounts(host()), real)
        on = found and found._asdict()
    channel.send("reading", reading={"state": state, "writable_at": writable, "on": on})
    channel.send("done")


def _inventory(request: dict[str, Any], channel: Channel, scratch: Scratch) -> None:
    from preflight.machine.inventory import inventory
    from preflight.machine.root import host

    channel.ready()
    answer = inventory(
        host(),
        emit=lambda partial: channel.send("reading", reading=partial),
        progress=lambda text: channel.send("progress", text=text),
        limit_s=request["limit_s"],
    )
    channel.send("reading", reading=answer)
    channel.send("done")


def _dataset(request: dict[str, Any], channel: Channel, scratch: Scratch) -> None:
    from preflight.user_code import UserCodeError, load, set_environment

    _own_temporary_folder(scratch)
    channel.ready()
    set_environment(request["variables"])
    wrong = None
    try:
        load(request["spec"])
    except UserCodeError as error:
        wrong = str(error)
    channel.send("reading", reading={"error": wrong})
    channel.send("done")


_TASKS = {"observe": _observe, "look": _look, "inventory": _inventory, "dataset": _dataset}
