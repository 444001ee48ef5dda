"""The machine's root: files under a path, and the system calls that belong to them.

Everything that reads the node goes through a Root, so that a directory of recorded files is a
machine. Missing and forbidden files are None, never an exception: the caller decides what it means.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class FileSystemSpace(NamedTuple):
    """statvfs in bytes; `free` is what an unprivileged process may still write."""

    size: int
    free: int


class Rlimit(NamedTuple):
    """One resource limit; None is unlimited."""

    soft: int | None
    hard: int | None


class Uname(NamedTuple):
    """Kernel and host name."""

    hostname: str
    release: str
    machine: str


@dataclass(frozen=True)
class Root:
    """A machine to read. Tests subclass it to answer the system calls from a recorded file."""

    path: str = "/"

    def host_path(self, name: str) -> Path:
        """Where the machine's absolute path `name` really lies."""
        return Path(self.path, name.lstrip("/"))

    def read_text(self, name: str) -> str | None:
        """The file's text, None when it is missing, unreadable or not a file."""
        try:
            return self.host_path(name).read_text(errors="replace")
        except (OSError, ValueError):
            return None

    def list_dir(self, name: str) -> list[str]:
        """Sorted names in a directory; empty when there is none to read."""
        try:
            return sorted(os.listdir(self.host_path(name)))
        except OSError:
            return []

    def space(self, name: str) -> FileSystemSpace | None:
        """Size and free bytes of the file system at `name`; None when it cannot be asked."""
        try:
            answer = os.statvfs(self.host_path(name))
        except OSError:
            return None
        return FileSystemSpace(answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize)

    def affinity(self) -> frozenset[int]:
        """CPUs this process may run on."""
        return frozenset(os.sched_getaffinity(0))

    def rlimit(self, name: str) -> Rlimit:
        """A limit by its name in `resource`, for example "RLIMIT_NOFILE"."""
        soft, hard = resource.getrlimit(getattr(resource, name))
        unlimited = resource.RLIM_INFINITY
        return Rlimit(None if soft == unlimited else soft, None if hard == unlimited else hard)

    def uname(self) -> Uname:
        """Kernel and host name."""
        answer = os.uname()
        return Uname(answer.nodename, answer.release, answer.machine)


def host() -> Root:
    """The machine we run on."""
    return Root("/")
