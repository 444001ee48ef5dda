"""admit.sh and run.sh with the real kubectl, against a cluster of a page."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ci.fake_cluster import JUNIT, Cluster
from tests.ci.kustomize import KUBERNETES

pytestmark = [
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here"),
    pytest.mark.timeout(100),
]


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    started: list[Cluster] = []
    yield started
    for cluster in started:
        cluster.close()


@pytest.fixture
def script(tmp_path: Path, clusters: list[Cluster]) -> Callable[..., subprocess.CompletedProcess]:
    def run(cluster: Cluster, name: str, *arguments: str, nodes: str = ""):
        clusters.append(cluster)
        config = tmp_path / "kubeconfig"
        config.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: "
            f"{{cluster: c}}}}], clusters: [{{name: c, cluster: {{server: {cluster.address}}}}}]}}"
        )
        environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}
        environment["POLL_S"] = "0"
        return subprocess.run(
            ["sh", str(KUBERNETES / name), "training", *arguments], input=nodes, text=True,
            capture_output=True, env=environment, timeout=90, cwd=tmp_path,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (2, 2), (3, 3), (137, 3)])
def test_admission_hands_on_the_code_and_takes_the_taint_off_after_a_pass(
    script, tmp_path, code, expected
):
    cluster = Cluster({"gpu-b17": code, "gpu-b18": 0})
    done = script(cluster, "node-admission/admit.sh", "gpu-b17")
    assert done.returncode == expected, done.stderr
    assert cluster.measured() == ["gpu-b17"]
    assert (cluster.taints("gpu-b17") == []) == (code == 0)
    assert cluster.taints("gpu-b18") == ["preflight/unchecked"]
    assert (tmp_path / "preflight.xml").read_text() == JUNIT


def test_a_pass_without_a_report_admits_nobody(script):
    cluster = Cluster({"gpu-b17": 0}, log="")
    done = script(cluster, "node-admission/admit.sh", "gpu-b17")
    assert done.returncode == 3 and "gpu-b17: no report" in done.stderr
    assert cluster.taints("gpu-b17") == ["preflight/unchecked"]


def test_a_job_that_hung_until_its_deadline_admits_nobody(script, tmp_path):
    (tmp_path / "preflight.xml").write_text(JUNIT)
    cluster = Cluster({"gpu-b17": None})
    done = script(cluster, "node-admission/admit.sh", "gpu-b17")
    assert done.returncode == 3 and "gpu-b17: no report" in done.stderr
    assert not (tmp_path / "preflight.xml").exists(), "an earlier node's report was left"


@pytest.mark.parametrize("name", ["node-admission/admit.sh", "fleet/run.sh"])
def test_a_cluster_that_does_not_answer_is_nobody_s_fail(script, name):
    cluster = Cluster({"gpu-b17": 0})
    cluster.close()
    done = script(cluster, name, *(["gpu-b17"] if "admit" in name else []), nodes="gpu-b17\n")
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("bad", [False, True])
def test_every_node_of_the_fleet_is_measured_once(script, bad):
    names = [f"gpu-b{number}" for number in range(10, 22)]
    cluster = Cluster({name: int(bad and name == "gpu-b13") for name in names})
    nodes = "".join(f"node/{name}\n" for name in [*names, names[0]])
    done = script(cluster, "fleet/run.sh", nodes=nodes)
    assert done.returncode == int(bad), done.stderr
    assert cluster.measured() == names
    assert max(cluster.at_once) == 8
    lines = sorted(done.stdout.splitlines())
    assert lines[3] == f"gpu-b13 {int(bad)} {'FAIL' if bad else 'PASS'} node gpu-b13"
    assert len(lines) == 12


def test_no_node_or_a_job_that_is_there_starts_nothing(script):
    cluster = Cluster({"gpu-b17": 0})
    assert script(cluster, "fleet/run.sh").returncode == 2
    assert cluster.kind("Job") == []
    assert script(cluster, "fleet/run.sh", nodes="gpu-b17\n").returncode == 0
    again = script(cluster, "fleet/run.sh", nodes="gpu-b17\n")
    assert again.returncode == 2 and "delete it first" in again.stderr
