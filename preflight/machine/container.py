"""Whether we run in a container, and whose; whether as root. Only warnings depend on it."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.machine.cgroup import Cgroups
from preflight.machine.kernel_text import integer
from preflight.machine.root import Root

# A marker's file says what started the container; a cgroup path survives where it is missing.
_MARKER_FILES = {"/run/.containerenv": "podman", "/.dockerenv": "docker"}
_CGROUP_WORDS = {
    "kubepods": "kubernetes",
    "libpod": "podman",
    "docker": "docker",
    "containerd": "containerd",
    "lxc": "lxc",
}


def runtime(root: Root, cgroups: Cgroups, environ: Mapping[str, str]) -> str | None:
    """docker, podman, kubernetes, containerd, lxc; None where no sign of a container is seen."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    for name, marker in _MARKER_FILES.items():
        if root.read_text(name) is not None:
            return marker
    return next((kind for word, kind in _CGROUP_WORDS.items() if word in cgroups.path), None)


def is_root(root: Root) -> bool:
    """Whether we are the host's UID 0.

    The root of a user namespace (rootless podman, userns-remap, hostUsers: false) may do no more
    to the host than the user it is mapped to. A hidden map counts as none.
    """
    return root.uid() == 0 and outside(root.read_text("/proc/self/uid_map")) == 0


def outside(uid_map: str | None) -> int:
    """The user that UID 0 is outside our user namespace, 0 where it cannot be told.

    Lines of "first inside, first outside, count" (user_namespaces(7)); the host's own namespace
    maps every UID to itself.
    """
    for line in (uid_map or "").splitlines():
        inside, user = (integer(word) for word in (*line.split(), "", "")[:2])
        if inside == 0 and user is not None:
            return user
    return 0
