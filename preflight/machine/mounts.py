"""/proc/self/mountinfo: which mount a path lies on, and what /dev/shm is.

A look at the mount table never touches the file systems in it, so a hanging one does no harm;
`read_shm` asks only /dev/shm, which is memory, and `writable_at` the path that it is given.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from preflight.machine.kernel_text import gib
from preflight.machine.root import MOST_ENTRIES, Entry, Root

if TYPE_CHECKING:
    from preflight.facts import Shm

SHM = "/dev/shm"
MOUNTINFO = "/proc/self/mountinfo"
_STALE_FILES_NAMED = 5
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo (proc_pid_mountinfo(5))."""

    id: str
    parent: str
    root: str  # which folder of the file system is mounted; not "/" for bind mounts
    point: str
    options: frozenset[str]  # of this mount
    fs_type: str
    source: str
    super_options: frozenset[str]  # of the file system, shared by all its mounts

    @property
    def read_only(self) -> bool:
        """Read-only by this mount or by the file system itself."""
        return "ro" in self.options or "ro" in self.super_options


def parse_mountinfo(text: str | None) -> list[Mount]:
    """All mounts, in the file's order; lines that are cut off or odd are left out."""
    mounts = []
    for line in (text or "").splitlines():
        # The number of optional fields before " - " varies.
        left, separator, right = line.partition(" - ")
        own, shared = left.split(), right.split(" ")
        if not separator or len(own) < 6 or len(shared) < 3:
            continue
        mounts.append(
            Mount(
                id=own[0],
                parent=own[1],
                root=_unescaped(own[3]),
                point=_unescaped(own[4]),
                options=frozenset(own[5].split(",")),
                fs_type=shared[0],
                source=_unescaped(shared[1]),
                super_options=frozenset(shared[2].split(",")),
            )
        )
    return mounts


def read_mounts(root: Root) -> list[Mount]:
    """The mounts this process sees; empty when /proc is hidden."""
    return parse_mountinfo(root.read_text(MOUNTINFO))


def mount_of(mounts: Sequence[Mount], path: str) -> Mount | None:
    """The mount that an absolute path without symbolic links lies on.

    Walks down the tree of mounts as the kernel does, because the longest mount point is wrong
    where a later mount hides an earlier one below it.
    """
    ids = {mount.id for mount in mounts}
    children: dict[str | None, list[Mount]] = {}
    for mount in mounts:
        known = mount.parent in ids and mount.parent != mount.id
        children.setdefault(mount.parent if known else None, []).append(mount)
    current: Mount | None = None
    # Every step goes to a mount not seen before, unless the table is garbage.
    for _ in mounts:
        below = [
            mount
            for mount in children.get(current.id if current else None, ())
            if _covers(mount.point, path)
        ]
        if not below:
            break
        current = min(below, key=lambda mount: len(mount.point))
    return current


def writable_at(root: Root, path: str) -> str | None:
    """The mount point that `path` (absolute, no symbolic links) lies on, where we may write to it.

    None where we may not, and on the root file system: what an image holds is no volume. Asks the
    path, which may hang.
    """
    mount = mount_of(read_mounts(root), path)
    if mount is None or mount.point == "/" or mount.read_only or not root.writable(path):
        return None
    return mount.point


def read_shm(root: Root, mounts: Sequence[Mount]) -> Shm | None:
    """/dev/shm; None when it is not a mount of its own or cannot be asked.

    Where the mount table is hidden, the file system's answer is all there is.
    """
    from preflight.facts import Shm  # here: a look at a data path must not pay for pydantic

    mount = mount_of(mounts, SHM)
    space = root.space(SHM)
    if space is None or (mounts and (mount is None or mount.point != SHM)):
        return None
    stale = list(itertools.islice(_files_below(root, SHM), MOST_ENTRIES))
    largest = sorted(stale, key=lambda file: file.size, reverse=True)[:_STALE_FILES_NAMED]
    return Shm(
        size_gib=gib(space.size),
        free_gib=gib(space.free),
        fs_type=mount.fs_type if mount else "unknown",
        read_only=mount.read_only if mount else False,
        stale_gib=gib(sum(file.size for file in stale)),
        stale_files=tuple(file.name for file in largest),
    )


def _files_below(root: Root, folder: str) -> Iterator[Entry]:
    """Files in the folder and in its folders, with their whole path; nothing deeper."""
    for entry in root.entries(folder):
        path = f"{folder}/{entry.name}"
        if not entry.is_folder:
            yield entry._replace(name=path)
            continue
        for inner in root.entries(path):
            if not inner.is_folder:
                yield inner._replace(name=f"{path}/{inner.name}")


def _covers(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescaped(field: str) -> str:
    """The field with its octal escapes (of a space, a tab) turned back into characters."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)
