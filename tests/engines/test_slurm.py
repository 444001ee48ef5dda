"""ci/slurm on a real cluster of two nodes, with the real preflight in its prolog.

Driver libraries stand in (tests/command/gpu_scenarios.py), so that a node can be healthy or broken.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from preflight.outcome import Outcome
from preflight.report.json_report import render
from tests.command import gpu_scenarios as nodes
from tests.command.running import STANDINS, read_json, wait_until
from tests.engines.slurm import NAMES, SCRIPTS, Cluster, cluster, running_cluster
from tests.gpu_standins.building import Libraries
from tests.report.reports import report, settings

__all__ = ["cluster", "running_cluster"]  # fixtures

pytestmark = pytest.mark.timeout(180)

BROKEN = nodes.UPGRADED_UNDER_RUNNING_MODULE
WHY = "preflight: driver_cuda"
WHERE = "echo ran on $SLURMD_NODENAME, restarts: ${SLURM_RESTART_COUNT:-0}"
QUICK = "extends: quick\n"
WRONG = "extends: quick\nshmm: {}\n"
"""Thresholds that preflight refuses at once; where a prolog's verdict does not matter."""


class Hardware:
    """Puts GPUs into the nodes of a cluster."""

    def __init__(self, cluster: Cluster, libraries: Libraries, folder: Path) -> None:
        self._cluster, self._libraries, self._folder = cluster, libraries, folder

    def put(self, node: str, gpus: nodes.Node, thresholds: str = QUICK) -> None:
        """What preflight sees on this node from now on."""
        environment = gpus.install(self._folder / node, self._libraries)
        environment |= {"STANDIN": "gpu", "PYTHONPATH": str(STANDINS)}
        self._cluster.on(node, environment, thresholds)


@pytest.fixture
def hardware(cluster: Cluster, libraries: Libraries, tmp_path: Path) -> Hardware:
    return Hardware(cluster, libraries, tmp_path)


def test_a_bad_node_is_drained_and_the_job_runs_on_the_good_one(
    cluster: Cluster, hardware: Hardware
):
    hardware.put("n1", BROKEN)
    hardware.put("n2", nodes.HEALTHY)
    job = cluster.submit(WHERE)

    _, reason = wait_until(lambda: cluster.node("n1"), lambda seen: seen[0] == "drained")
    assert reason.startswith(WHY) and "kernel module" in reason
    assert f"n1: drained: {reason.removeprefix('preflight: ')}" in cluster.said()

    wait_until(lambda: cluster.job(job)["JobState"], lambda seen: seen == "PENDING")
    cluster.start_now(job)
    assert cluster.ended(job) == "COMPLETED"
    assert cluster.output(job) == "ran on n2, restarts: 1\n"
    wait_until(lambda: cluster.node("n2"), lambda seen: seen == ("idle", "none"))
    assert read_json(cluster.report("n1"))["exit_code"] == 1
    assert read_json(cluster.report("n1"))["node"]["name"] == "n1"
    assert read_json(cluster.report("n2"))["exit_code"] == 0


@pytest.mark.parametrize(
    ("thresholds", "code", "said"),
    [(WRONG, 2, "options or thresholds are wrong"), (QUICK, 3, "undecided")],
    ids=["2", "3"],
)
def test_what_does_not_blame_the_node_drains_nothing(
    cluster: Cluster, hardware: Hardware, thresholds: str, code: int, said: str
):
    hardware.put("n1", nodes.NO_GPU_GIVEN, thresholds)  # blames how it was started
    job = cluster.submit(WHERE, "--nodelist=n1")
    assert cluster.ended(job) == "COMPLETED"
    assert cluster.output(job) == "ran on n1, restarts: 0\n"
    assert f"n1: job {job}: {said}" in cluster.said()
    assert read_json(cluster.report("n1"))["exit_code"] == code
    wait_until(lambda: cluster.node("n1"), lambda seen: seen == ("idle", "none"))


def test_no_more_than_two_of_four_nodes_are_drained(cluster: Cluster, hardware: Hardware):
    for name in NAMES:
        cluster.ask("scontrol", "update", f"NodeName={name}", "Reason=preflight: gpus.lost")
    hardware.put("n1", BROKEN)
    job = cluster.submit(WHERE, "--nodelist=n1")
    assert cluster.ended(job) == "COMPLETED"
    assert "2 of 4 nodes of p are drained by preflight; look at them first" in cluster.said()
    assert cluster.node("n1")[1] == "none"


def test_a_node_steps_back_when_others_were_drained_at_the_same_moment(
    cluster: Cluster, hardware: Hardware
):
    others = " ".join(f'&& "$real" update NodeName={name} Reason="preflight: x"' for name in NAMES)
    with cluster.instead_of("scontrol", f'"$real" "$@" && [ "$3" = State=DRAIN ] {others}; true'):
        hardware.put("n1", BROKEN)
        job = cluster.submit(WHERE, "--nodelist=n1")
        assert cluster.ended(job) == "COMPLETED"
    assert "n1: not drained" in cluster.said() and "2 of 4 nodes of p" in cluster.said()
    assert cluster.node("n1")[1] == "none"


def test_nothing_is_measured_beside_another_job(cluster: Cluster):
    cluster.on("n1", {}, WRONG)
    first = cluster.submit("sleep 300", "--nodelist=n1")
    wait_until(lambda: cluster.job(first)["JobState"], lambda state: state == "RUNNING")
    wait_until(cluster.said, lambda said: f"job {first}: options or thresholds" in said)
    second = cluster.submit(WHERE, "--nodelist=n1")
    assert cluster.ended(second) == "COMPLETED"
    assert f"n1: job {second}: not measured: job {first} is here too" in cluster.said()


def test_the_health_check_drains_by_a_fresh_fail_and_not_by_an_old_one(cluster: Cluster):
    failed = render(
        report(
            outcome=Outcome.FAIL, exit_code=1, reason="gpus: GPU 3 has fallen off the PCIe bus",
            settings=settings(exit_on="node"),
        )
    )  # fmt: skip
    day_old = time.time() - 25 * 3600
    for node in ("n1", "n2"):
        cluster.report(node).parent.mkdir(exist_ok=True)
        whole = cluster.report(node).with_suffix(".part")
        whole.write_bytes(failed)
        if node == "n1":
            os.utime(whole, (day_old, day_old))
        whole.rename(cluster.report(node))
    wait_until(lambda: cluster.node("n2")[0], lambda state: state == "drained")
    assert cluster.node("n2")[1] == "preflight: gpus: GPU 3 has fallen off the PCIe bus"
    wait_until(cluster.said, lambda said: "n1: no result: the last is 25 h old" in said)
    assert cluster.node("n1") == ("idle", "none")


@pytest.mark.parametrize("bad", [None, "n2"], ids=["both pass", "one fails"])
def test_training_starts_when_every_node_passed(cluster: Cluster, tmp_path: Path, bad: str | None):
    for node in ("n1", "n2"):
        needs = "1e6" if node == bad else "0"
        cluster.on(node, {"PREFLIGHT_SET": f"shm.min_free_gib={needs}"}, WRONG)
    text = (SCRIPTS / "job.sbatch").read_text()
    for before, after in (
        ("preflight=/opt/preflight/bin/preflight", f"preflight={cluster.folder}/bin/preflight"),
        ("train=(python train.py)", "train=(sh -c 'echo trained on $SLURMD_NODENAME')"),
        ("#SBATCH --gpus-per-node=8\n", ""),  # nodes here have none to ask for
        ("--ntasks-per-node=8\n", "--ntasks-per-node=2\n"),
    ):
        assert before in text
        text = text.replace(before, after)
    script = tmp_path / "job.sbatch"
    script.write_text(text)
    options = {"PREFLIGHT_CHECK": "limits,shm", "PREFLIGHT_GPU": "none", "PREFLIGHT_WORKLOAD": ""}
    job = cluster.submit(script, **options)

    state = cluster.ended(job)
    lines = sorted(cluster.output(job).splitlines())
    trained = [line for line in lines if line.startswith("trained")]
    reports = cluster.folder / f"preflight-{job}"
    codes = {node: read_json(reports / node / "preflight.json")["exit_code"]
             for node in ("n1", "n2")}  # fmt: skip
    if bad is None:
        assert state == "COMPLETED" and codes == {"n1": 0, "n2": 0}, lines
        assert trained == ["trained on n1"] * 2 + ["trained on n2"] * 2
    else:
        assert state == "FAILED" and codes == {"n1": 0, "n2": 1}, lines
        assert cluster.job(job)["ExitCode"] == "1:0" and not trained
        assert any(line.startswith("FAIL node n2: shm") for line in lines)
        assert any(line.startswith("PASS node n1") for line in lines)


@pytest.mark.parametrize("passes", [True, False], ids=["pass", "fail"])
def test_srun_starts_every_task_after_one_gate_per_node(cluster: Cluster, passes: bool):
    for node in ("n1", "n2"):
        cluster.on(node, {"PREFLIGHT_GPU": "none"}, WRONG)
    needs = "0" if passes else "1e6"
    done = cluster.srun(
        "--nodes=2", "--ntasks-per-node=2", f"{cluster.folder}/bin/preflight", "run",
        "--thresholds=cpu", "--check=shm", f"--set=shm.min_free_gib={needs}", "--",
        "sh", "-c", "echo trained on $SLURMD_NODENAME as $SLURM_LOCALID",
    )  # fmt: skip
    lines = sorted(done.stdout.splitlines())
    trained = [line for line in lines if line.startswith("trained")]
    gates = [line for line in lines if line.startswith(("PASS node", "FAIL node"))]
    if passes:
        assert done.returncode == 0, done.stdout + done.stderr
        assert trained == [f"trained on {node} as {task}" for node in ("n1", "n2") for task in "01"]
    else:
        assert done.returncode == 91, done.stdout + done.stderr
        assert trained == []
    word = "PASS" if passes else "FAIL"
    assert [line.partition(":")[0].split()[:3] for line in gates] == [
        [word, "node", node] for node in ("n1", "n2")
    ]
