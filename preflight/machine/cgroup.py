"""Where our cgroup and its visible ancestors lie, for each controller: v1, v2 and hybrid.

A limit of any ancestor binds, but a container often sees only its own directory: what is found
here is what can be seen, so a limit read from it is an upper bound. Formats: cgroups(7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from preflight.machine.mounts import Mount, read_mounts
from preflight.machine.root import Root

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids")


class Membership(NamedTuple):
    """One line of /proc/self/cgroup; no controllers is the v2 hierarchy."""

    controllers: frozenset[str]
    path: str


@dataclass(frozen=True)
class Hierarchy:
    """The directories whose limits bind us for one controller."""

    version: int
    dirs: tuple[str, ...]  # our own first, then each visible ancestor up to the mount point

    def file_name(self, v1: str, v2: str) -> str:
        """The controller's file by its name in this version."""
        return v1 if self.version == 1 else v2

    def read(self, root: Root, v1: str, v2: str) -> Iterator[tuple[str, str]]:
        """(directory, text) of the file in every directory that has it, our own first."""
        for folder in self.dirs:
            text = root.read_text(f"{folder}/{self.file_name(v1, v2)}")
            if text is not None:
                yield folder, text


@dataclass(frozen=True)
class Cgroups:
    """Our place in every hierarchy."""

    kind: str = "none"  # v1, v2, hybrid or none
    path: str = ""  # as /proc/self/cgroup gives them, one line each: names the container runtime
    by_controller: Mapping[str, Hierarchy] = field(default_factory=dict)

    def get(self, controller: str) -> Hierarchy | None:
        """The hierarchy that governs the controller; None when there is none to see."""
        return self.by_controller.get(controller)


def parse_memberships(text: str | None) -> list[Membership]:
    """The lines of /proc/self/cgroup: hierarchy:controllers:path (the path may hold colons)."""
    memberships = []
    for line in (text or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            names = frozenset(name for name in parts[1].split(",") if name)
            memberships.append(Membership(names, parts[2]))
    return memberships


def candidates(path: str, mounts: Sequence[Mount]) -> list[tuple[str, ...]]:
    """Where the cgroup `path` and its ancestors may lie, for each mount of its hierarchy.

    Both `path` and a mount's root are counted from the root of our cgroup namespace; ".." leads
    out of it. Where the names between them are hidden by the namespace, or where the mount does
    not hold our cgroup at all, only the mount point itself is left: it is what we were shown.
    """
    found = []
    for mount in mounts:
        below = _below(mount.root, path) or ()
        found.append(tuple(_join(mount.point, below[:n]) for n in range(len(below), -1, -1)))
    return found


def read_cgroups(root: Root, mounts: Sequence[Mount] | None = None) -> Cgroups:
    """Find our cgroups; `mounts` saves reading the mount table again."""
    memberships = parse_memberships(root.read_text("/proc/self/cgroup"))
    mounts = read_mounts(root) if mounts is None else mounts
    unified = [mount for mount in mounts if mount.fs_type == "cgroup2"]
    found: dict[str, Hierarchy] = {}
    for controller in CONTROLLERS:
        old = [m for m in mounts if m.fs_type == "cgroup" and controller in m.super_options]
        for membership in memberships:
            # A controller that is bound to a v1 hierarchy does not exist in the v2 one.
            if controller in membership.controllers:
                dirs = _visible(root, candidates(membership.path, old))
            elif not membership.controllers and controller not in found:
                dirs = _visible(root, candidates(membership.path, unified))
            else:
                continue
            if dirs:
                found[controller] = Hierarchy(1 if membership.controllers else 2, dirs)
    return Cgroups(
        kind=_kind(mounts),
        path="\n".join(membership.path for membership in memberships),
        by_controller=found,
    )


def _visible(root: Root, found: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The longest chain of directories that are really there."""
    there = (tuple(folder for folder in dirs if root.list_dir(folder)) for dirs in found)
    return max(there, key=len, default=())


def _kind(mounts: Sequence[Mount]) -> str:
    v1 = any(m.fs_type == "cgroup" and m.super_options & set(CONTROLLERS) for m in mounts)
    v2 = any(m.fs_type == "cgroup2" for m in mounts)
    if v1 and v2:
        return "hybrid"
    return "v1" if v1 else "v2" if v2 else "none"


def _below(top: str, path: str) -> tuple[str, ...] | None:
    """The names that lead from the cgroup `top` down to `path`; None when they are not known."""
    top_ups, top_names = _split(top)
    path_ups, path_names = _split(path)
    if top_ups != path_ups or path_names[: len(top_names)] != top_names:
        return None
    return path_names[len(top_names) :]


def _split(path: str) -> tuple[int, tuple[str, ...]]:
    names = tuple(name for name in path.split("/") if name)
    ups = sum(name == ".." for name in names)
    return ups, names[ups:]


def _join(point: str, names: Sequence[str]) -> str:
    return "/".join((point.rstrip("/"), *names))
