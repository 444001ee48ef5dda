"""Makes the conditions of the staged cases around one run of the command, and takes them away.

Each is a context manager that yields how the command comes under it: the words in front of it, its
options and its environment. What a machine does not let us make is skipped with the reason. Groups
are of cgroup v1, which version 2 has under other names.
"""

from __future__ import annotations

import os
import resource
import socketserver
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.command.hanging import storage
from tests.command.running import can_mount, in_own_mounts
from tests.command.slow_disk import slow_disk

_CGROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_BUSY = "while True: pass"
_SHIELD = 200_000
"""CPU shares beside which an ordinary group's 1024 do not count."""


@dataclass(frozen=True)
class Under:
    """How a command is started so that a condition holds for it."""

    wrapped: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """What one run may use: a folder of its own, and the images that all runs share."""

    folder: Path
    images: Path


Stage = Callable[[Place], AbstractContextManager[Under]]


@contextmanager
def all_of(stages: tuple[Stage, ...], place: Place) -> Iterator[Under]:
    """Several conditions at once; the first is the outermost."""
    wrapped: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    env: dict[str, str] = {}
    with ExitStack() as stack:
        for stage in stages:
            under = stack.enter_context(stage(place))
            wrapped, options = (*wrapped, *under.wrapped), (*options, *under.options)
            env |= under.env
        yield Under(wrapped, options, env)


def _root_only(what: str) -> None:
    if os.geteuid() != 0:
        pytest.skip(f"{what} needs root")


@contextmanager
def _group(controller: str, **values: int) -> Iterator[tuple[str, ...]]:
    """A control group with these settings; what to put in front of a command to be in it."""
    _root_only("a control group")
    above = _CGROUPS / controller
    if not (above / "cgroup.procs").exists():
        pytest.skip(f"there is no {controller} hierarchy of cgroup v1 here")
    folder = above / f"preflight-case-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        for name, value in values.items():
            (folder / f"{controller}.{name}").write_text(str(value))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield ("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """A group can be removed once the last of its processes has been reaped."""
    for _ in range(100):
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.1)


@contextmanager
def shielded(place: Place) -> Iterator[Under]:
    """Before everyone else on the CPUs where that can be had, so that neighbours do not count."""
    try:
        with _group("cpu", shares=_SHIELD) as joined:
            yield Under(joined)
    except pytest.skip.Exception:
        yield Under()


def cpu_quota(cpus: float) -> Stage:
    """No more than so many CPUs' time, and that before everyone else."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        quota = int(cpus * _PERIOD_US)
        values = {"cfs_period_us": _PERIOD_US, "cfs_quota_us": quota, "shares": _SHIELD}
        with _group("cpu", **values) as joined:
            yield Under(joined)

    return stage


def one_cpu(place: Place) -> AbstractContextManager[Under]:
    """Bound to the first CPU that we may use."""

    @contextmanager
    def stage() -> Iterator[Under]:
        yield Under(("taskset", "-c", str(min(os.sched_getaffinity(0)))))

    return stage()


def weighed(shares: int, neighbours: int) -> Stage:
    """So many CPU shares beside a group of busy processes, one a CPU, that has `neighbours`."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with (
            _group("cpu", shares=neighbours) as theirs,
            _group("cpu", shares=shares) as joined,
            _busy(len(os.sched_getaffinity(0)), theirs),
        ):
            yield Under(joined)

    return stage


def beside(count: int) -> Stage:
    """Beside so many processes that only use CPU time."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with _busy(count):
            yield Under()

    return stage


@contextmanager
def _busy(count: int, wrapped: tuple[str, ...] = ()) -> Iterator[None]:
    started = [
        subprocess.Popen([*wrapped, sys.executable, "-c", _BUSY], stdin=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def disk(bytes_per_s: int) -> Stage:
    """The images on a disk of their own, none of them in memory, that reads so fast."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with slow_disk(place.folder, place.images, bytes_per_s) as slow:
            yield Under(slow.wrapped, (f"--data={slow.folder}",))

    return stage


def file_server(**delays_s: float) -> Stage:
    """The images on a FUSE file system of ours whose operations take so much longer."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with storage(place.folder) as served:
            served.source.rmdir()
            served.source.symlink_to(place.images)
            served.delay(**delays_s)
            yield Under((), (f"--data={served.folder}",))

    return stage


def local_images(place: Place) -> AbstractContextManager[Under]:
    """The images where they are."""

    @contextmanager
    def stage() -> Iterator[Under]:
        yield Under((), (f"--data={place.images}",))

    return stage()


def broken_images(count: int, mended: bool = False) -> Stage:
    """So many of the images, a twentieth of them cut short; or those taken away."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        folder = place.folder / "broken"
        folder.mkdir()
        for number, path in enumerate(sorted(place.images.iterdir())[:count]):
            if number % 20:
                (folder / path.name).hardlink_to(path)
            elif not mended:
                (folder / path.name).write_bytes(path.read_bytes()[:1000])
        yield Under((), (f"--data={folder}",))

    return stage


def empty_folder(place: Place) -> AbstractContextManager[Under]:
    """What a volume looks like that is not mounted."""

    @contextmanager
    def stage() -> Iterator[Under]:
        (place.folder / "empty").mkdir()
        yield Under((), (f"--data={place.folder / 'empty'}",))

    return stage()


def _mounts(*steps: str) -> Under:
    if not can_mount():
        pytest.skip("mounts of one's own need root")
    return Under(in_own_mounts(" && ".join(steps)))


def shm(mib: int) -> Stage:
    """A /dev/shm of its own of that size."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        yield _mounts(f"mount -t tmpfs -o size={mib}m tmpfs /dev/shm")

    return stage


def read_only_root(*writable: str) -> Stage:
    """Nothing may be written to but the reports and what is named."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        reports = place.folder / "reports"
        reports.mkdir()
        folders = (str(reports), "/var/tmp", "/tmp")
        steps = [f"mount --bind {folder} {folder}" for folder in (*folders, reports)]
        shut = [folder for folder in ("/tmp", "/var/tmp", "/") if folder not in writable]
        steps += [f"mount -o remount,bind,ro {folder}" for folder in shut]
        under = _mounts(*steps)
        inside = ("sh", "-c", 'cd / && exec "$@"', "sh")
        tmpdir = {} if writable else {"TMPDIR": "/nowhere"}
        yield Under((*under.wrapped, *inside), (), tmpdir)

    return stage


def open_files(value: int) -> Stage:
    """A limit on open files, as far as this machine lets it be raised."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        yield Under(("sh", "-c", f'ulimit -n {value} && exec "$@"', "sh"))

    return stage


def pids(most: int) -> Stage:
    """No more than so many processes and threads."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with _group("pids", max=most) as joined:
            yield Under(joined)

    return stage


def memory(mib: int) -> Stage:
    """No more than so much memory."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        with _group("memory", limit_in_bytes=mib << 20) as joined:
            yield Under(joined)

    return stage


def server(answer_s: float, *, threads: bool) -> Stage:
    """A server on this machine that answers after so long: all at once, or one after the other."""

    @contextmanager
    def stage(place: Place) -> Iterator[Under]:
        class Answer(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(16)
                time.sleep(answer_s)
                self.request.sendall(bytes(3 * 32 * 32))

        kind = socketserver.ThreadingTCPServer if threads else socketserver.TCPServer
        with kind(("127.0.0.1", 0), Answer) as serving:
            serving.request_queue_size = 128
            serving.socket.listen(128)
            thread = threading.Thread(target=serving.serve_forever, daemon=True)
            thread.start()
            try:
                yield Under(env={"CASE_PORT": str(serving.server_address[1])})
            finally:
                serving.shutdown()

    return stage
