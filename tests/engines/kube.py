"""A machine that plays the Pods of ci/kubernetes with podman, on folders a test can look into.

Changed is only what podman cannot do: claims, emptyDir in memory, spec.nodeName, $(POD_NAME), and
a Job, of which the Pod is played.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.command.images import write_images
from tests.engines.engine import Engine

SHM_MIB = 64
NODE_NAME = "gpu-b17"
# What any machine without a GPU passes.
PASSES = {
    "extends": "cpu",
    "limits": {"min_memory_headroom_gib": 0},
    "shm": {"min_free_gib": 0},
    "sample": {"shape": [3, 32, 32]},
    "loader": {"num_workers": 1, "batch_size": 4},
    "dataloader": {"min_samples_per_s": 0.5},
}
FAILS = {**PASSES, "run": {"checks": ["limits", "shm"]}, "shm": {"min_free_gib": 1}}
_PLACES = ("shm", "data", "output")
# podman removes an init container that passed, and its log, where nothing is said.
_KEEP = {"io.podman.annotations.init.container.type": "always"}


@dataclass
class Played:
    """What a Pod came to."""

    code: int
    pod: str
    output: Path
    podman: Engine

    def trained(self) -> dict[str, Any] | None:
        """What the training saw; None where it never ran."""
        file = self.output / "trained.json"
        return dict(json.loads(file.read_text())) if file.exists() else None

    def report(self) -> dict[str, Any]:
        """What stays of the gate when its Pod is gone."""
        file = self.output / "preflight" / self.pod / "preflight.json"
        return dict(json.loads(file.read_text("utf-8")))

    def state(self, container: str) -> dict[str, Any]:
        """The engine's word on a container."""
        (found,) = json.loads(self.podman("inspect", f"{self.pod}-{container}").stdout)
        return dict(found["State"])

    def log(self, container: str) -> str:
        """As kubectl logs shows it."""
        done = self.podman("logs", f"{self.pod}-{container}")
        return done.stdout + done.stderr


@dataclass
class Node:
    """A machine; what it plays stays in its folder."""

    podman: Engine
    folder: Path

    def play(self, documents: list[dict[str, Any]]) -> Played:
        """Play the one Pod, or Job, among documents that a kustomization came to."""
        (config,) = [each for each in documents if each["kind"] == "ConfigMap"]
        (workload,) = [each for each in documents if each["kind"] in ("Pod", "Job")]
        template = workload["spec"]["template"] if workload["kind"] == "Job" else workload
        name = f"{workload['metadata']['name']}-{uuid.uuid4().hex[:8]}"
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": _KEEP},
            "spec": deepcopy(template["spec"]),
        }  # fmt: skip
        self._fit(pod["spec"], name)
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump_all([config, pod]), "utf-8")
        done = self.podman("kube", "play", "--network", "none", str(file))
        return Played(done.returncode, name, self.folder / "output", self.podman)

    def played(self) -> list[str]:
        """Names of the Pods that were played here, the last one last."""
        files = sorted(self.folder.glob("*.yaml"), key=lambda file: file.stat().st_mtime_ns)
        return [file.stem for file in files]

    def _fit(self, spec: Any, pod: str) -> None:
        for volume in spec["volumes"]:
            if volume["name"] in _PLACES:
                place = {"path": str(self.folder / volume["name"]), "type": "Directory"}
                volume.pop("emptyDir", volume.pop("persistentVolumeClaim", None))
                volume["hostPath"] = place
        (gate,), (training,) = spec["initContainers"], spec["containers"]
        for variable in gate["env"]:
            if variable["name"] == "NODE_NAME":
                assert variable.pop("valueFrom") == {"fieldRef": {"fieldPath": "spec.nodeName"}}
                variable["value"] = NODE_NAME
            if variable["name"] == "PREFLIGHT_REPORT_DIR":
                variable["value"] = variable["value"].replace("$(POD_NAME)", pod)
        for container in (gate, training):
            container["imagePullPolicy"] = "Never"


class NoTmpfs(Exception):
    """Nothing can be mounted here, and podman makes no emptyDir in memory."""


@contextmanager
def machine(podman: Engine) -> Iterator[Node]:
    """A node with training data; raises NoTmpfs."""
    # A folder outside pytest's, which other users may not enter.
    with tempfile.TemporaryDirectory(prefix="pf-kube-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for place in _PLACES:
            (folder / place).mkdir()
            (folder / place).chmod(0o777)
        write_images(folder / "data", 40)
        shm = str(folder / "shm")
        size = f"size={SHM_MIB}m,mode=1777"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", shm]).returncode:
            raise NoTmpfs("no tmpfs can be mounted here, and podman makes none for a Pod")
        node = Node(podman, folder)
        try:
            yield node
        finally:
            for pod in node.played():
                podman("kube", "down", str(folder / f"{pod}.yaml"))
            subprocess.run(["umount", "-l", shm], check=True)
