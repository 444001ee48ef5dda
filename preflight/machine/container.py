"""Whether we run in a container, and whose. For the report: no verdict depends on it."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.machine.cgroup import Cgroups
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
