"""The machine's root: files under a path, and the system calls that belong to them.

Everything that reads the node goes through a Root, so that a directory of recorded files is a
machine. Missing and forbidden files are None, never an exception: the caller decides what it means.
"""

from __future__ import annotations

import itertools
import os
import resource
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MOST_ENTRIES = 2000
_CHUNK_BYTES = 1 << 16
_STAT_BLOCK_BYTES = 512  # st_blocks counts these, whatever the file system's own block (stat(2))


class FileSystemSpace(NamedTuple):
    """statvfs in bytes; `free` is what an unprivileged process may still write."""

    size: int
    free: int


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    size: int  # bytes it really occupies, which for a sparse file is less than its length
    is_folder: bool


class Ram(NamedTuple):
    """Bytes of memory as the kernel counts them, /proc or not."""

    total: int
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
        return Path(self._where(name))

    def _where(self, name: str) -> str:
        return os.path.join(self.path, name.lstrip("/"))

    def read_text(self, name: str) -> str | None:
        """The file's text, None when it is missing, unreadable or not a file."""
        # System calls alone take a third of what Path.read_text does, and the load of a running
        # measurement is read through here.
        try:
            descriptor = os.open(self._where(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                chunks = iter(lambda: os.read(descriptor, _CHUNK_BYTES), b"")
                return b"".join(chunks).decode(errors="replace")
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            return None

    def link(self, name: str) -> str | None:
        """Where a symbolic link points, None when there is none or it may not be read."""
        try:
            return os.readlink(self._where(name))
        except (OSError, ValueError):
            return None

    def list_dir(self, name: str) -> list[str]:
        """Sorted names in a directory; empty when there is none to read."""
        try:
            return sorted(os.listdir(self._where(name)))
        except (OSError, ValueError):
            return []

    def space(self, name: str) -> FileSystemSpace | None:
        """Size and free bytes of the file system at `name`; None when it cannot be asked."""
        try:
            answer = os.statvfs(self._where(name))
        except (OSError, ValueError):
            return None
        return FileSystemSpace(answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize)

    def entries(self, name: str) -> list[Entry]:
        """What lies in a directory, by lstat; empty when there is none to read.

        Stops after MOST_ENTRIES: a directory with a million names must not hold us up.
        """
        found = []
        try:
            with os.scandir(self._where(name)) as names:
                for entry in itertools.islice(names, MOST_ENTRIES):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # removed meanwhile
                    found.append(
                        Entry(
                            # Reports are UTF-8, file names need not be.
                            os.fsencode(entry.name).decode(errors="replace"),
                            status.st_blocks * _STAT_BLOCK_BYTES,
                            stat.S_ISDIR(status.st_mode),
                        )
                    )
        except (OSError, ValueError):
            pass
        return found

    def writable(self, name: str) -> bool:
        """Whether we may write to a file or folder; false also on a read-only mount."""
        try:
            return os.access(self._where(name), os.W_OK)
        except ValueError:
            return False

    def uid(self) -> int:
        """The user we run as."""
        return os.geteuid()

    def ram(self) -> Ram:
        """Memory by sysinfo(2), which answers even where /proc/meminfo is hidden."""
        page = os.sysconf("SC_PAGE_SIZE")
        return Ram(os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page)

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
