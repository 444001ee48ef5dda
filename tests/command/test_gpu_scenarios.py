"""GPU nodes through the real command: each gets its own finding, blame, remedy and exit code.

Driver libraries, device and machine files stand in (see gpu_scenarios.py); the command does not
know. Only what hangs costs time, and only its own.
"""

from __future__ import annotations

import ctypes.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command import gpu_scenarios as nodes
from tests.command.gpu_scenarios import Node
from tests.command.running import PASS_HERE, SMALL_LOADER, Gate, Ran, assert_one_verdict
from tests.gpu_standins.building import Libraries

UNCOVERED = True
GPU_CHECKS = ("--check=pinned_copy",)  # and what it needs: driver_cuda, gpus
SHORT = ("--set=driver_cuda.timeout_s=4", "--set=pinned_copy.timeout_s=5")
OWN_DRIVER = ctypes.util.find_library("cuda") or ctypes.util.find_library("nvidia-ml")

Start = Callable[..., Any]


@pytest.fixture
def on(gate: Gate, libraries: Libraries, tmp_path: Path) -> Iterator[Start]:
    """Start the command on a node."""
    environments: dict[int, dict[str, str | None]] = {}

    def start(node: Node, *arguments: str, **options: Any) -> Any:
        if not (node.nvml and node.libcuda) and OWN_DRIVER:
            pytest.skip("this machine has an NVIDIA driver, which would be found instead")
        if id(node) not in environments:
            environments[id(node)] = node.install(tmp_path / "node", libraries)
        env = environments[id(node)]
        return gate.start("run", *arguments, standin="gpu", env=env, **options)

    yield start
    gate.assert_nothing_left()


@dataclass(frozen=True)
class Case:
    """A node and what has to be said of it."""

    node: Node
    finding: str
    outcome: str
    blame: str
    cause: str
    remedy: str
    """Both are regular expressions, searched for."""
    subject: str | None = None
    options: tuple[str, ...] = ()

    def code(self, exit_on: str) -> int:
        """The exit code, as README has it."""
        if self.outcome == "warn":
            return 0
        return 1 if self.outcome == "fail" and (exit_on == "any" or self.blame == "node") else 3


CASES = {
    # -- no CUDA on the node ------------------------------------------------------------------
    "no GPU given": Case(
        nodes.NO_GPU_GIVEN, "driver_cuda.present", "fail", "setup",
        "driver 580.95.05, but no GPU was given", r"--gpus all.*nvidia\.com/gpu",
    ),
    "no NVML": Case(
        nodes.WITHOUT_NVML, "driver_cuda.present", "fail", "setup",
        "libnvidia-ml.so.1 .* not there.*without utility",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    "no libcuda": Case(
        nodes.WITHOUT_LIBCUDA, "driver_cuda.present", "fail", "setup",
        "libcuda.so.1 is not there.*without compute", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    "driver upgraded under its module": Case(
        nodes.UPGRADED_UNDER_RUNNING_MODULE, "driver_cuda.present", "fail", "node",
        "kernel module are of different versions.*NVML 18", "reboot",
    ),
    "NVML hangs": Case(
        nodes.NVML_HANGS, "driver_cuda.present", "fail", "node", "nvmlInit_v2 never came back",
        "out of service.*dmesg", options=("--set=gpus.timeout_s=4",),
    ),
    # -- CUDA does not start --------------------------------------------------------------------
    "stub library": Case(
        nodes.STUB, "driver_cuda.init", "fail", "image", "stub", "stubs folder.*LD_LIBRARY_PATH"
    ),
    "driver newer than compat library": Case(
        nodes.COMPAT_TOO_OLD, "driver_cuda.init", "fail", "image",
        r"compat library.*libcuda 570\.86\.15.*driver 580\.95\.05",
        "compat folder out of the loader's path",
    ),
    "compat library on a GeForce": Case(
        nodes.COMPAT_ON_GEFORCE, "driver_cuda.init", "fail", "image",
        r"compat library.*libcuda\.so\.590\.44\.01", "data-centre GPUs",
    ),
    "fabric not ready": Case(
        nodes.FABRIC_NOT_READY, "driver_cuda.init", "fail", "node", "fabric.*in progress",
        "nvidia-fabricmanager",
    ),
    "999": Case(
        nodes.UNKNOWN_ERROR, "driver_cuda.init", "fail", "setup", "cgroup",
        "create the container again",
    ),
    "999 without uvm": Case(
        nodes.WITHOUT_UVM, "driver_cuda.init", "fail", "setup", "/dev/nvidia-uvm is missing",
        "nvidia-modprobe|modprobe nvidia_uvm",
    ),
    "all hidden": Case(
        nodes.HIDDEN, "driver_cuda.init", "fail", "setup", 'CUDA_VISIBLE_DEVICES="" names no GPU',
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "cuInit hangs": Case(
        nodes.CUINIT_HANGS, "driver_cuda.completed", "fail", "node",
        "cuInit.*did not return in 4 s", "dmesg", "GPU 0", SHORT,
    ),
    # -- torch and driver do not fit --------------------------------------------------------------
    "driver under the floor": Case(
        nodes.OLD_DRIVER, "driver_cuda.driver_floor", "fail", "node",
        r"CUDA 13\.0.*needs driver 580\.65\.06.*570\.124\.06", "newer.*built for CUDA 12",
    ),
    "CPU-only torch": Case(
        nodes.CPU_WHEEL, "driver_cuda.torch_build", "fail", "image", "built for CPUs only",
        "CUDA build of torch",
    ),
    "no torch": Case(
        nodes.WITHOUT_TORCH, "driver_cuda.torch_build", "error", "image", "no torch is installed",
        "image of the training job",
    ),
    "architecture not covered": Case(
        nodes.NOT_COVERED, "driver_cuda.architecture", "fail", "image", r"sm_90.*B200 is 10\.0",
        r"compute capability 10\.0", "GPU 0",
    ),
    "driver of an old branch": Case(
        nodes.OLD_LIBRARIES, "driver_cuda.branch_end_of_life", "warn", "node", "branch 525",
        "long-term support",
    ),
    # -- a GPU ----------------------------------------------------------------------------------
    "GPU lost": Case(
        nodes.ONE_LOST, "gpus.lost", "fail", "node", "fallen off the PCIe bus", "Xid 79", "GPU 3"
    ),
    "compute mode prohibited": Case(
        nodes.PROHIBITED, "gpus.compute_mode", "fail", "node", "no process may use CUDA",
        "nvidia-smi -i GPU-.* -c DEFAULT", "GPU 0",
    ),
    "computes wrongly": Case(
        nodes.COMPUTES_WRONGLY, "driver_cuda.kernel", "fail", "node", "computes wrongly",
        "out of service.*replaced", "GPU 1",
    ),
    "corrupts": Case(
        nodes.CORRUPTS, "pinned_copy.verified", "fail", "node", "came back.*other than",
        "out of service", "GPU 1",
    ),
    "copy refused": Case(
        nodes.COPY_REFUSED, "pinned_copy.copied", "fail", "node",
        "a sum and a copy are all.*while copying pinned memory to the device", "reset the GPU",
        "GPU 1",
    ),
    "NVML hangs on one": Case(
        nodes.ONE_NVML_CALL_HANGS, "gpus.lost", "fail", "node",
        "no answer in 3 s: nvmlDeviceGetName", "dmesg.*reset or reboot", "GPU 1",
        options=("--set=gpus.timeout_s=4",),
    ),
    # -- what was given -------------------------------------------------------------------------
    "MIG without slices": Case(
        nodes.MIG_WITHOUT_SLICES, "gpus.mig", "fail", "setup", "MIG is on.*no instance",
        r"nvidia\.com/mig-.*mig -cgi", "GPU 1",
    ),
    "MIG without slices, no other GPU": Case(
        nodes.ONLY_MIG_WITHOUT_SLICES, "driver_cuda.init", "fail", "setup",
        "MIG is on for GPU 0, and no slice", r"nvidia\.com/mig-",
    ),
    "two of eight": Case(
        nodes.TWO_OF_EIGHT, "gpus.count", "fail", "setup", "2 of the node's 8 GPUs",
        "ask for 8.*gpu:8", options=("--set=gpus.min_count=8",),
    ),
    "six forbidden": Case(
        nodes.FORBIDDEN, "gpus.count", "fail", "setup", "2 of 8 GPUs were given to us",
        "ask for 8.*gpu:8", options=("--set=gpus.min_count=8",),
    ),
    "x8 in a guest": Case(
        nodes.X16_AT_X8.but(slot_width=None), "pinned_copy.link_below_capability", "warn",
        "unknown", "slot's own width is not to be seen", "reseat", "GPU 0",
    ),
    "crashing libcuda": Case(
        nodes.HEALTHY.but(told={"cuInit": "crash"}), "driver_cuda.completed", "error", "unknown",
        "starting CUDA.*crashed the process", "nvidia-smi", "GPU 0",
    ),
    "two of eight named": Case(
        nodes.EIGHT.but(environment={"CUDA_VISIBLE_DEVICES": "0,1"}), "gpus.count", "fail",
        "setup", "CUDA_VISIBLE_DEVICES='0,1' leaves 2 of the 8", "unset it",
        options=("--set=gpus.min_count=8",),
    ),
    "occupied": Case(
        nodes.OCCUPIED, "gpus.foreign_processes", "error", "shared", "4242, 4243 hold GPU 1",
        "expect.gpu_sharing", "GPU 1",
    ),
    "mixed models": Case(
        nodes.MIXED, "gpus.mixed_models", "warn", "setup", "A100.*H100", "one model|--gpu NAME"
    ),
    # -- the link -------------------------------------------------------------------------------
    "Gen5 at Gen3": Case(
        nodes.GEN5_AT_GEN3, "pinned_copy.link_below_capability", "fail", "node",
        "Gen3 x16 during the copy.*Gen5 x16", "reseat.*BIOS", "GPU 0",
    ),
    "x16 at x8": Case(
        nodes.X16_AT_X8, "pinned_copy.link_below_capability", "fail", "node",
        "Gen5 x8 during the copy.*Gen5 x16", "reseat", "GPU 0",
    ),
    "link read low by NVML alone": Case(
        nodes.LINK_READ_LOW, "pinned_copy.link_below_capability", "warn", "unknown",
        "Gen4 x16.*the copies reach", "repeat", "GPU 0",
    ),
    "slow copies alone": Case(
        nodes.SLOW, "pinned_copy.h2d_fraction", "fail", "node",
        "Gen5 x16.*nothing else was on the GPUs.*near.*full speed", "AER.*BIOS", "GPU 0",
    ),
    "slow copies beside others": Case(
        nodes.SLOW.but(others_on_bus=7), "pinned_copy.h2d_fraction", "fail", "shared",
        "Gen5 x16", "exclusive|alone|idle", "GPU 0",
    ),
}  # fmt: skip


HANGING = {
    "kernel": Case(
        nodes.ONE_KERNEL_HANGS, "driver_cuda.completed", "fail", "node",
        "running a kernel on GPU 3 did not return in 4 s", "dmesg", "GPU 3", SHORT,
    ),
    "cuInit": Case(
        nodes.ONE_CUINIT_HANGS, "driver_cuda.completed", "fail", "node",
        "cuInit.*GPU 3 did not return in 4 s", "dmesg", "GPU 3", SHORT,
    ),
    "copy": Case(
        nodes.ONE_COPY_HANGS, "pinned_copy.completed", "fail", "node",
        "from the device to pinned memory on GPU 3 did not return in 5 s", "dmesg", "GPU 3", SHORT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_what_is_wrong_is_named_with_its_remedy(on: Start, case: Case, tmp_path: Path) -> None:
    gate = (f"--check={case.finding.partition('.')[0]}", *case.options)
    other = tmp_path / "other"
    by_node = on(case.node, *gate, "--exit-on=node", f"--report-dir={other}", reports=False)
    ran = on(case.node, *gate).end()
    assert by_node.end().code == case.code("node")
    assert_case(ran, case)


@pytest.mark.parametrize("case", HANGING.values(), ids=list(HANGING))
def test_one_gpu_of_eight_that_hangs_costs_no_other_result(on: Start, case: Case) -> None:
    ran = on(case.node, *GPU_CHECKS, *case.options).end()
    assert_case(ran, case)
    assert [f["subject"] for f in all_findings(ran) if f["id"].endswith(".completed")] == ["GPU 3"]
    others = [f"GPU {index}" for index in range(8) if index != 3]
    for id in ("driver_cuda.kernel", "pinned_copy.h2d_fraction", "pinned_copy.verified"):
        passed = [f["subject"] for f in findings(ran, id) if f["outcome"] == "pass"]
        assert [subject for subject in passed if subject != "GPU 3"] == others


def assert_case(ran: Ran, case: Case) -> None:
    assert_one_verdict(ran, case.code("any"))
    found = finding(ran, case.finding, case.subject)
    assert (found["outcome"], found["blame"]) == (case.outcome, case.blame), found
    assert re.search(case.cause, found["cause"]), found["cause"]
    assert re.search(case.remedy, found["remedy"]), found["remedy"]


HEALTHY = {
    "one H100": nodes.HEALTHY,
    "eight H100": nodes.EIGHT,
    "two given of eight": nodes.TWO_OF_EIGHT,
    "an unknown model": nodes.UNKNOWN_MODEL,
    "A100": nodes.several(nodes.A100),
    "T4 in an x8 slot": nodes.T4_IN_AN_X8_SLOT,
    "passed through to a guest": nodes.HEALTHY.gpu(0, virtualization=1),
}


@pytest.mark.parametrize("node", HEALTHY.values(), ids=list(HEALTHY))
def test_a_healthy_node_passes_without_a_word(on: Start, node: Node) -> None:
    ran = on(node, *GPU_CHECKS).end()
    assert_one_verdict(ran, 0)
    assert {f["outcome"] for f in all_findings(ran)} == {"pass"}
    judged = [f["subject"] for f in findings(ran, "pinned_copy.h2d_fraction")]
    assert judged == [f"GPU {index}" for index in range(len(node.gpus))]


def test_a_model_without_a_file_is_said_to_be_judged_by_its_link(on: Start) -> None:
    ran = on(nodes.UNKNOWN_MODEL, *GPU_CHECKS).end()
    (note,) = ran.report["settings"]["warnings"]
    assert nodes.UNKNOWN_MODEL.gpus[0]["name"] in note and "link-model" in note
    assert "note: no threshold file is for" in ran.stdout


def test_the_link_that_counts_is_the_busy_one(on: Start) -> None:
    ran = on(nodes.HEALTHY, *GPU_CHECKS).end()
    assert ran.report["facts"]["gpus"][0]["link"]["gen"] == 1
    assert finding(ran, "pinned_copy.link_below_capability", "GPU 0")["observed"] == "Gen5 x16"


def test_a_slower_slot_is_told_and_not_failed(on: Start) -> None:
    ran = on(nodes.IN_A_GEN4_SLOT, *GPU_CHECKS).end()
    assert_one_verdict(ran, 0)
    assert finding(ran, "pinned_copy.h2d_fraction", "GPU 0")["outcome"] == "pass"
    told = finding(ran, "pinned_copy.link_below_capability", "GPU 0")
    assert told["outcome"] == "pass"
    assert "Gen4 x16, " in told["observed"]


@pytest.mark.parametrize(
    ("node", "subjects", "why"),
    [
        (nodes.MIG, ["GPU 0 MIG 0", "GPU 0 MIG 1"], "MIG slice"),
        (nodes.GH200, ["GPU 0"], "NVLink-C2C"),
        (nodes.VGPU, ["GPU 0"], "virtual GPU"),
    ],
    ids=["MIG", "GH200", "vGPU"],
)
def test_copies_that_no_pcie_link_explains_get_no_verdict(
    on: Start, node: Node, subjects: list[str], why: str
) -> None:
    ran = on(node, *GPU_CHECKS).end()
    assert_one_verdict(ran, 0)
    unjudged = findings(ran, "pinned_copy.h2d_fraction")
    assert [(f["subject"], f["outcome"]) for f in unjudged] == [(s, "skip") for s in subjects]
    assert all(why in f["cause"] for f in unjudged)
    assert {f["outcome"] for f in findings(ran, "driver_cuda.kernel")} == {"pass"}


@pytest.mark.parametrize("thresholds", ["default", "quick"])
def test_a_healthy_node_passes_whole_threshold_sets(on: Start, thresholds: str) -> None:
    # Whether this machine could feed an H100 is not the question.
    loader = (*SMALL_LOADER, "--set=dataloader.min_feed_ratio=0.001")
    ran = on(nodes.HEALTHY, f"--thresholds={thresholds}", *loader).end()
    assert_one_verdict(ran, 0)
    assert ran.report["outcome"] == PASS_HERE, ran.stdout
    outcomes = {result["check"]: result["outcome"] for result in ran.report["results"]}
    assert {"driver_cuda", "gpus", "limits", "shm", "pinned_copy"} <= set(outcomes)
    assert outcomes.pop("limits") == PASS_HERE
    nothing_to_go_by = {"storage", "feed"} & set(outcomes)  # no data path and no demand
    assert {outcomes.pop(check) for check in nothing_to_go_by} <= {"skip"}
    assert set(outcomes.values()) == {"pass"}


@pytest.mark.skipif(bool(OWN_DRIVER), reason="this machine has an NVIDIA driver")
def test_without_a_gpu_the_first_line_says_why_and_what_to_do(gate: Gate) -> None:
    plain = {"COLUMNS": "400", "PREFLIGHT_GPU": None}
    ran = gate.run("run", "--no-color", *SMALL_LOADER, env=plain)
    assert_one_verdict(ran, 1)
    first = ran.stdout.splitlines()[0]
    assert first.startswith("FAIL")
    assert "driver_cuda: no NVIDIA driver in reach" in first
    assert "--gpus all" in first


def test_info_tells_of_the_gpus(gate: Gate, libraries: Libraries, tmp_path: Path) -> None:
    env = nodes.TWO_OF_EIGHT.install(tmp_path / "node", libraries)
    ran = gate.run("info", standin="gpu", env=env, reports=False)
    told = dict(line.split(maxsplit=1) for line in ran.stdout.splitlines())
    assert (ran.code, told["node"], told["gpus.1.name"]) == (0, "shared", nodes.H100["name"])
    assert told["nvml.driver_version"] == nodes.DRIVER
    gate.assert_nothing_left()


def all_findings(ran: Ran) -> list[dict[str, Any]]:
    return [entry for result in ran.report["results"] for entry in result["findings"]]


def findings(ran: Ran, id: str) -> list[dict[str, Any]]:
    return [entry for entry in all_findings(ran) if entry["id"] == id]


def finding(ran: Ran, id: str, subject: str | None) -> dict[str, Any]:
    (found,) = [entry for entry in findings(ran, id) if entry["subject"] == subject]
    return found
