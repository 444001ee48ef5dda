"""Makes the conditions of the staged cases around one run of the command, and takes them away.

Each is a context manager that yields how the command comes under it: the words in front of it, its
options and its environment. What a machine does not let us make is skipped with the reason. Those
that are control groups stand in `groups`.
"""

from __future__ import annotations

import os
import resource
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.command.hanging import storage
from tests.command.running import can_mount, in_own_mounts
from tests.command.slow_disk import slow_disk


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


def one_cpu(place: Place) -> AbstractContextManager[Under]:
    """Bound to the first CPU that we may use."""

    @contextmanager
    def stage() -> Iterator[Under]:
        yield Under(("taskset", "-c", str(min(os.sched_getaffinity(0)))))

    return stage()


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
