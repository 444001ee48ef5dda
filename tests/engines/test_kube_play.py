"""The shipped training Pod in podman: the gate decides whether training starts.

The manifest is the one of ci/kubernetes, with its ConfigMap. Changed is only what podman cannot do
(claims, emptyDir in memory, spec.nodeName, $(POD_NAME)); a few lines of Python stand for training.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ci.kustomize import KUBERNETES, build
from tests.command.images import write_images

pytestmark = pytest.mark.timeout(180)

Podman = Callable[..., "subprocess.CompletedProcess[str]"]

SHM_MIB = 64
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
TRAINING = """\
import json, os, sys
shm = os.statvfs("/dev/shm")
seen = {
    "uid": os.getuid(),
    "shm_mib": shm.f_blocks * shm.f_frsize >> 20,
    "root_is_writable": os.access("/", os.W_OK),
    "data": sorted(os.listdir("/data")),
}
json.dump(seen, open("/output/trained.json", "w"))
sys.exit(7)
"""


@dataclass
class Played:
    """What a Pod came to."""

    code: int
    pod: str
    output: Path
    podman: Podman

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

    def log_of_the_gate(self) -> str:
        """As kubectl logs shows it."""
        done = self.podman("logs", f"{self.pod}-preflight")
        return done.stdout + done.stderr


@dataclass
class Node:
    """A machine that plays one Pod after another, on volumes that the test can look into."""

    podman: Podman
    image: str
    folder: Path
    pods: list[Path] = field(default_factory=list)

    def play(self, thresholds: str | None = None) -> Played:
        """Start the training with these thresholds, or with those that are shipped."""
        config, pod = sorted(build(KUBERNETES / "training-pod"), key=lambda each: each["kind"])
        if thresholds is not None:
            config["data"] = dict.fromkeys(config["data"], thresholds)
        name = pod["metadata"]["name"] = f"training-{uuid.uuid4().hex[:8]}"
        self._fit(pod["spec"], name)
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump_all([config, pod]), "utf-8")
        self.pods.append(file)
        done = self.podman("kube", "play", "--network", "none", str(file))
        return Played(done.returncode, name, self.folder / "output", self.podman)

    def _fit(self, spec: Any, pod_name: str) -> None:
        for volume in spec["volumes"]:
            if volume["name"] in ("shm", "data", "output"):
                place = {"path": str(self.folder / volume["name"]), "type": "Directory"}
                volume.pop("emptyDir", volume.pop("persistentVolumeClaim", None))
                volume["hostPath"] = place
        (gate,), (training,) = spec["initContainers"], spec["containers"]
        for variable in gate["env"]:
            if variable["name"] == "NODE_NAME":
                assert variable.pop("valueFrom") == {"fieldRef": {"fieldPath": "spec.nodeName"}}
                variable["value"] = "gpu-b17"
            if variable["name"] == "PREFLIGHT_REPORT_DIR":
                variable["value"] = variable["value"].replace("$(POD_NAME)", pod_name)
        training["command"] = ["python3", "-c", TRAINING]
        for container in (gate, training):
            container |= {"image": self.image, "imagePullPolicy": "Never"}

    def close(self) -> None:
        """Leave nothing of ours in the engine."""
        for file in self.pods:
            self.podman("kube", "down", str(file))


@pytest.fixture
def node(podman: Podman, image: str) -> Iterator[Node]:
    """A folder outside pytest's, which other users may not enter."""
    with tempfile.TemporaryDirectory(prefix="pf-kube-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for place in ("shm", "data", "output"):
            (folder / place).mkdir()
            (folder / place).chmod(0o777)
        write_images(folder / "data", 40)
        shm = str(folder / "shm")
        size = f"size={SHM_MIB}m,mode=1777"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", shm]).returncode:
            pytest.skip("no tmpfs can be mounted here, and podman makes none for a Pod")
        node = Node(podman, image, folder)
        try:
            yield node
        finally:
            node.close()
            subprocess.run(["umount", "-l", shm], check=True)


def test_training_starts_after_a_pass_with_what_the_gate_had(node: Node):
    played = node.play(yaml.safe_dump(PASSES))
    assert played.code == 0, played.log_of_the_gate()
    done = node.podman("wait", f"{played.pod}-training")
    assert done.stdout.strip() == "7"
    trained = played.trained()
    assert trained == {
        "uid": 10001, "shm_mib": SHM_MIB, "root_is_writable": False, "data": ["class0", "class1"],
    }  # fmt: skip
    report = played.report()
    assert (report["outcome"] in ("pass", "warn"), report["exit_code"]) == (True, 0)
    assert report["node"]["name"] == "gpu-b17"
    cpu = report["facts"]["cpu"]
    # A request that no such machine can have given is told of and not counted.
    arrived = cpu["request"] == 8 if cpu["online"] >= 8 else "8" in cpu["request_ignored"]
    assert arrived and cpu["quota"] == 8
    assert round(report["facts"]["shm"]["size_gib"] * 1024) == SHM_MIB
    assert report["settings"]["options"]["data"] == "/data"


def test_training_does_not_start_after_a_fail_and_the_report_stays(node: Node):
    played = node.play(yaml.safe_dump(FAILS))
    assert played.code != 0
    assert played.state("preflight")["ExitCode"] == 1
    assert played.state("training")["Status"] == "created"
    assert played.trained() is None
    assert "FAIL node gpu-b17: shm: " in played.log_of_the_gate()
    report = played.report()
    assert (report["complete"], report["exit_code"]) == (True, 1)


def test_as_shipped_a_machine_without_a_gpu_does_not_train(node: Node):
    played = node.play()
    assert played.state("preflight")["ExitCode"] == 1
    assert played.trained() is None
    assert "FAIL node gpu-b17: driver_cuda: " in played.log_of_the_gate()
    assert played.report()["settings"]["layers"][-1].endswith("thresholds.yaml")


@pytest.mark.parametrize("thresholds", ["", "shm: {min_fre_gib: 1}\n"], ids=["empty", "misspelt"])
def test_a_wrong_config_map_measures_nothing_and_says_so(node: Node, thresholds):
    played = node.play(thresholds)
    assert played.state("preflight")["ExitCode"] == 2
    assert played.trained() is None
    (line,) = played.log_of_the_gate().splitlines()
    assert line.startswith("preflight: /etc/preflight/thresholds.yaml:1: ")
    assert played.report()["exit_code"] == 2
