"""The shipped training Pod in podman: the gate decides whether training starts.

The manifest is the one of ci/kubernetes, with its ConfigMap; a few lines of Python stand for the
training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import yaml

from tests.ci.kustomize import KUBERNETES, build
from tests.engines.engine import Engine
from tests.engines.kube import FAILS, NODE_NAME, PASSES, SHM_MIB, NoTmpfs, Played, machine

pytestmark = pytest.mark.timeout(180)

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

Play = Callable[..., Played]


@pytest.fixture
def play(podman: Engine, image: str) -> Iterator[Play]:
    """Start the training with these thresholds, or with those that are shipped."""
    try:
        with machine(podman) as node:

            def start(thresholds: str | None = None) -> Played:
                documents = build(KUBERNETES / "training-pod")
                config, pod = sorted(documents, key=lambda each: each["kind"])
                if thresholds is not None:
                    config["data"] = dict.fromkeys(config["data"], thresholds)
                (gate,), (training,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
                gate["image"] = training["image"] = image
                training["command"] = ["python3", "-c", TRAINING]
                return node.play(documents)

            yield start
    except NoTmpfs as why:
        pytest.skip(str(why))


def test_training_starts_after_a_pass_with_what_the_gate_had(podman: Engine, play: Play):
    played = play(yaml.safe_dump(PASSES))
    assert played.code == 0, played.log("preflight")
    assert podman("wait", f"{played.pod}-training").stdout.strip() == "7"
    trained = played.trained()
    assert trained == {
        "uid": 10001, "shm_mib": SHM_MIB, "root_is_writable": False, "data": ["class0", "class1"],
    }  # fmt: skip
    report = played.report()
    assert (report["outcome"] in ("pass", "warn"), report["exit_code"]) == (True, 0)
    assert report["node"]["name"] == NODE_NAME
    cpu = report["facts"]["cpu"]
    # A request that no such machine can have given is told of and not counted.
    arrived = cpu["request"] == 8 if cpu["online"] >= 8 else "8" in cpu["request_ignored"]
    assert arrived and cpu["quota"] == 8
    assert round(report["facts"]["shm"]["size_gib"] * 1024) == SHM_MIB
    assert report["settings"]["options"]["data"] == "/data"


def test_training_does_not_start_after_a_fail_and_the_report_stays(play: Play):
    played = play(yaml.safe_dump(FAILS))
    assert played.code != 0
    assert played.state("preflight")["ExitCode"] == 1
    assert played.state("training")["Status"] == "created"
    assert played.trained() is None
    assert f"FAIL node {NODE_NAME}: shm: " in played.log("preflight")
    report = played.report()
    assert (report["complete"], report["exit_code"]) == (True, 1)


def test_as_shipped_a_machine_without_a_gpu_does_not_train(play: Play):
    played = play()
    assert played.state("preflight")["ExitCode"] == 1
    assert played.trained() is None
    assert f"FAIL node {NODE_NAME}: driver_cuda: " in played.log("preflight")
    assert played.report()["settings"]["layers"][-1].endswith("thresholds.yaml")


@pytest.mark.parametrize("thresholds", ["", "shm: {min_fre_gib: 1}\n"], ids=["empty", "misspelt"])
def test_a_wrong_config_map_measures_nothing_and_says_so(play: Play, thresholds):
    played = play(thresholds)
    assert played.state("preflight")["ExitCode"] == 2
    assert played.trained() is None
    (line,) = played.log("preflight").splitlines()
    assert line.startswith("preflight: /etc/preflight/thresholds.yaml:1: ")
    assert played.report()["exit_code"] == 2
