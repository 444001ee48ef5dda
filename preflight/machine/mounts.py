"""/proc/self/mountinfo: which mount a path lies on, of what kind it is, and what /dev/shm is.

A look at the mount table never touches the file systems in it, so a hanging one does no harm;
`read_shm` asks only /dev/shm, which is memory, and `writable_at` the path that it is given.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from preflight.machine.kernel_text import gib
from preflight.machine.root import MOST_ENTRIES, Entry, Root

if TYPE_CHECKING:
    from preflight.facts import Shm

SHM = "/dev/shm"
MOUNTINFO = "/proc/self/mountinfo"
_STALE_FILES_NAMED = 5
_OCTAL = re.compile(r"\\([0-7]{3})")

_NETWORK = {
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fhgfs", "gfs2", "glusterfs", "gpfs",
    "kafs", "lustre", "mmfs", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2",
    "quobyte", "smb3", "smbfs", "vastnfs", "wekafs",
}  # fmt: skip
# Subtypes of FUSE (the mount's type is fuse.<subtype>) that are known to sit on a server.
_NETWORK_FUSE = {
    "alluxio", "alluxio-fuse", "blobfuse", "blobfuse2", "ceph-fuse", "cephfs", "cunofs",
    "curlftpfs", "cvmfs", "cvmfs2", "davfs", "gcsfuse", "geesefs", "glusterfs", "goofys",
    "hf-mount", "juicefs", "lustre", "mfs", "moosefs", "mountpoint-s3", "objectivefs", "ossfs",
    "quobyte", "rclone", "s3backer", "s3fs", "saunafs", "seaweedfs", "smbnetfs", "sshfs",
    "tigrisfs",
}  # fmt: skip
_MEMORY = {"ramfs", "tmpfs", "rootfs", "hugetlbfs"}
_LOCAL = {"zfs", "bcachefs", "ubifs", "jffs2"}  # whose source need not be a path in /dev
# Block devices whose other end is a server: many clients, as with a network file system.
_NETWORK_DEVICE = re.compile(r"/dev/(rbd|nbd|drbd)")

READS_ACCOUNTED = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "nilfs2", "vfat", "exfat", "ntfs3",
     "udf", "iso9660"}
)  # fmt: skip
"""Whose reads the kernel counts for the process that asked (/proc/PID/io: read_bytes).

Measured here for ext4. ZFS and bcachefs read in threads of their own, FUSE and network file
systems by other ways: there no read_bytes does not mean that memory answered.
"""


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


class FileSystem(NamedTuple):
    """What a path lies on; the fields are those of `preflight.job.DataOn`."""

    point: str
    fs_type: str
    source: str
    kind: Literal["local", "network", "memory", "unknown"]


def file_system_of(mounts: Sequence[Mount], path: str) -> FileSystem | None:
    """The file system that an absolute path without symbolic links lies on; None where hidden."""
    mount = mount_of(mounts, path)
    if mount is None:
        return None
    return FileSystem(mount.point, mount.fs_type, mount.source, kind_of(mounts, mount))


def kind_of(
    mounts: Sequence[Mount], mount: Mount
) -> Literal["local", "network", "memory", "unknown"]:
    """Where the bytes of a file system come from.

    Local needs a block device (or a file system that manages its own). What a FUSE process does is
    unknown unless its name says so. An overlay is what its layers are, where they can be seen and
    are all of one kind; in a container they cannot.
    """
    kind, _, subtype = mount.fs_type.partition(".")
    if kind in _NETWORK or _NETWORK_DEVICE.match(mount.source):
        return "network"
    if kind in ("fuse", "fuseblk"):
        return "network" if subtype.lower() in _NETWORK_FUSE else "unknown"
    if kind in _MEMORY:
        return "memory"
    if kind == "overlay":
        return _kind_of_layers(mounts, mount)
    if kind in _LOCAL or kind in READS_ACCOUNTED or mount.source.startswith("/dev/"):
        return "local"
    return "unknown"


def _kind_of_layers(
    mounts: Sequence[Mount], overlay: Mount
) -> Literal["local", "network", "memory", "unknown"]:
    folders: list[str] = []
    for option in overlay.super_options:
        name, _, value = option.partition("=")
        if name == "upperdir":
            folders.append(_unescaped(value))
        elif name in ("lowerdir", "lowerdir+", "datadir+"):
            folders += _unescaped(value).split(":")
    below = [mount_of(mounts, folder) if folder.startswith("/") else None for folder in folders]
    # In a container the paths are the host's: what lies there now is the overlay itself, or chance.
    if not below or any(mount is None or mount.fs_type == "overlay" for mount in below):
        return "unknown"
    kinds = {kind_of(mounts, mount) for mount in below if mount is not None}
    return kinds.pop() if len(kinds) == 1 else "unknown"


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
