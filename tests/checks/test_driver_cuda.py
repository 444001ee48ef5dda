"""driver_cuda: the verdict from readings, coverage of architectures, and the steps of observe."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.checks.contract import Unit
from preflight.checks.driver_cuda import CHECK, KERNEL_NUMBERS
from preflight.checks.driver_cuda.coverage import coverage, version_numbers
from preflight.checks.driver_cuda.reading import DriverCudaReading
from preflight.cuda_facts import CudaDriver, CudaGpu, CudaLibrary
from preflight.facts import Torch
from preflight.gpu_facts import GpuHost, Nvml
from preflight.machine import cuda_driver
from preflight.machine.root import host
from preflight.measure import device
from preflight.model import Finding
from preflight.outcome import Blame, Outcome
from preflight.scratch import Scratch
from tests import making

LIMITS = making.settings("default").limits["driver_cuda"]

ARCHES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
LIBRARY = CudaLibrary(
    loaded=True, error=None, path="/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
    version="580.95.05", compat=False, stub=False,
)  # fmt: skip
H100 = CudaGpu(
    ordinal=0, name="NVIDIA H100 80GB HBM3", uuid="00000000-0000-0000-0000-000000000000",
    compute_capability="9.0", integrated=False, pci_bus_id="0000:1b:00.0",
)  # fmt: skip
DRIVER = CudaDriver(
    cuda_version="13.0", init_code=0, init_name=None, device_count=1, devices=(H100,)
)
FACTS = making.gpu_facts()
HEALTHY = DriverCudaReading(
    subject="GPU 0", driver_version="580.95.05", nvml=FACTS.nvml, gpu_host=FACTS.gpu_host,
    gpu=FACTS.gpus[0], closed_by_mig=(), broken_gpus=(), torch=FACTS.torch, container="docker",
    environment={"NVIDIA_VISIBLE_DEVICES": "all"}, library=LIBRARY, driver=DRIVER,
    arch_list=ARCHES, kernel_sum="549755289600.0", kernel_expected="549755289600.0",
)  # fmt: skip
GONE = LIBRARY.model_copy(
    update={
        "loaded": False, "path": None, "version": None,
        "error": "libcuda.so.1: cannot open shared object file: No such file or directory",
    }
)  # fmt: skip


def library(**changes: Any) -> CudaLibrary:
    return LIBRARY.model_copy(update=changes)


def nvml(state: str, **changes: Any) -> Nvml:
    empty = dict.fromkeys(("code", "error", "step", "driver_version", "cuda_version"))
    return Nvml.model_validate({"state": state, **empty, **changes})


def fails(code: int, name: str | None = None) -> CudaDriver:
    return DRIVER.model_copy(
        update={"init_code": code, "init_name": name, "device_count": None, "devices": ()}
    )


def on(capability: str, cuda: str = "13.0", **changes: Any) -> CudaDriver:
    gpu = H100.model_copy(update={"compute_capability": capability, **changes})
    return DRIVER.model_copy(update={"devices": (gpu,), "cuda_version": cuda})


def nodes(*names: str, module: str | None = "580.95.05", pci: tuple[str, ...] = ()) -> GpuHost:
    return GpuHost(kernel_module=module, device_nodes=names, pci_gpus=pci)


def judged(*changes: dict[str, Any]) -> list[Finding]:
    readings = [HEALTHY.model_copy(update=change) for change in changes or ({},)]
    return CHECK.judge(readings, LIMITS)


def short(findings: list[Finding]) -> dict[str, str]:
    """What is not a pass: id (and subject) -> outcome and blame."""
    return {
        " ".join(filter(None, (finding.id.partition(".")[2], finding.subject))): " ".join(
            str(word) for word in (finding.outcome, finding.blame) if word
        )
        for finding in findings
        if finding.outcome is not Outcome.PASS
    }


BARE: dict[str, Any] = {
    "subject": None, "gpu": None, "driver_version": None, "nvml": nvml("no_library"),
    "library": GONE, "driver": None, "arch_list": (), "kernel_sum": None, "environment": {},
    "gpu_host": nodes(module=None),
}  # fmt: skip
NO_KERNEL: dict[str, Any] = {"kernel_sum": None}
COMPAT = library(path="/usr/local/cuda/compat/libcuda.so.580.95.05", compat=True)
STUB = library(path="/usr/local/cuda/lib64/stubs/libcuda.so", version=None, stub=True)

# What was seen, what is not a pass, and words of the first such finding's cause.
CASES: list[tuple[str, dict[str, Any], dict[str, str], str]] = [
    ("a healthy node", {}, {}, ""),
    # present
    ("nothing of a driver", BARE, {"present": "fail setup"}, "no NVIDIA driver in reach"),
    (
        "a runtime that did not act", {**BARE, "environment": {"NVIDIA_VISIBLE_DEVICES": "all"}},
        {"present": "fail setup"}, "NVIDIA_VISIBLE_DEVICES=all is set, but no NVIDIA runtime",
    ),
    (
        "no GPU asked for", {**BARE, "gpu_host": nodes(), "driver_version": "580.95.05",
                             "environment": {"NVIDIA_VISIBLE_DEVICES": "void"}},
        {"present": "fail setup"}, "driver 580.95.05, but no GPU was given to us",
    ),
    (
        "devices alone were passed", {**BARE, "gpu_host": nodes("/dev/nvidia0")},
        {"present": "fail setup"}, "though /dev/nvidia0 is",
    ),
    (
        "GPUs without a driver", {**BARE, "gpu_host": nodes(module=None, pci=("1", "2"))},
        {"present": "fail node"}, "2 NVIDIA GPUs on the PCI bus, but no driver is loaded",
    ),
    (
        "a stub in place of a driver", {**BARE, "library": STUB, "driver": fails(34)},
        {"present": "fail setup"}, "libcuda is of no use",
    ),
    (
        "no capability compute",
        {**BARE, "nvml": FACTS.nvml, "environment": {"NVIDIA_DRIVER_CAPABILITIES": "utility"}},
        {"present": "fail setup"}, "NVIDIA_DRIVER_CAPABILITIES is utility, without compute",
    ),
    (
        "no libcuda beside NVML",
        {**BARE, "nvml": FACTS.nvml, "environment": {"NVIDIA_DRIVER_CAPABILITIES": "all"}},
        {"present": "fail setup"}, "libcuda.so.1 is not there",
    ),
    (
        "an empty libcuda in the image",
        {**BARE, "library": library(loaded=False, error="libcuda.so.1: file too short")},
        {"present": "fail image"}, "file too short",
    ),
    (
        "no capability utility",
        {"nvml": nvml("no_library"),
         "environment": {"NVIDIA_DRIVER_CAPABILITIES": "compute,video"}},
        {"present": "fail setup"}, "is compute,video, without utility",
    ),
    (
        "no NVML, and CUDA has its own trouble",
        {**NO_KERNEL, "nvml": nvml("no_library"), "driver": fails(802)},
        {"present": "fail setup", "init": "fail node"}, "libnvidia-ml.so.1 (NVML) is not there",
    ),
    (
        "Jetson", {"nvml": nvml("no_library"), "driver_version": None, "gpu": None,
                   "driver": on("8.7", integrated=True), "library": library(version=None),
                   "gpu_host": nodes("/dev/nvhost-gpu", module=None)},
        {"present": "warn setup", "driver_floor": "skip"}, "CUDA works without NVML",
    ),
    (
        "WSL without NVML", {"nvml": nvml("no_library"), "library": library(version=None),
                             "gpu_host": nodes("/dev/dxg", module=None), "driver_version": None},
        {"present": "warn setup", "driver_floor": "error unknown"}, "CUDA works without NVML",
    ),
    (
        "NVML hangs", {**BARE, "library": None, "nvml": nvml("no_answer", step="nvmlInit",
                                                             error="no answer in 20 s")},
        {"present": "fail node"},
        "the NVIDIA driver hangs: nvmlInit never came back (no answer in 20 s)",
    ),
    (
        "the inventory died", {**BARE, "library": None,
                               "nvml": nvml("failed", error="died of signal 11")},
        {"present": "error unknown"}, "died of signal 11",
    ),
    (
        "an NVML code explains CUDA's",
        {**NO_KERNEL, "nvml": nvml("error", code=18, error="mismatch"), "driver": fails(803)},
        {"present": "fail node"}, "(NVML 18 ",
    ),
    (
        "an NVML code beside working CUDA", {"nvml": nvml("error", code=9, error="not loaded"),
                                             "kernel_sum": "1.0"},
        {"present": "fail node", "kernel GPU 0": "fail node"}, "(NVML 9 ",
    ),
    # init
    (
        "the fabric", {**NO_KERNEL, "driver": fails(802, "CUDA_ERROR_SYSTEM_NOT_READY"),
                       "gpu": making.gpu(fabric="in progress")},
        {"init": "fail node"}, "NVML says in progress",
    ),
    (
        "GPUs hidden", {**NO_KERNEL, "subject": None, "gpu": None, "driver": fails(100),
                        "environment": {"CUDA_VISIBLE_DEVICES": ""}},
        {"init": "fail setup"}, 'CUDA_VISIBLE_DEVICES="" names no GPU',
    ),
    (
        "a start without a device", {**NO_KERNEL, "driver": DRIVER.model_copy(
            update={"devices": (), "device_count": 0})},
        {"init": "fail setup"}, "NVML lists the GPU, but CUDA cannot open it",
    ),
    (
        "no GPU that works", {**NO_KERNEL, "subject": None, "gpu": None, "driver": fails(100),
                              "broken_gpus": ("GPU 0 GPU is lost",)},
        {"init": "fail node"}, "GPU 0 GPU is lost",
    ),
    (
        "MIG without a slice", {**NO_KERNEL, "subject": None, "gpu": None, "driver": fails(100),
                                "closed_by_mig": ("GPU 0",)},
        {"init": "fail setup"}, "no slice of it is ours",
    ),
    (
        "an old stub beside NVML", {**NO_KERNEL, "driver": fails(3), "library": STUB},
        {"init": "fail image"}, "stub",
    ),
    (
        "a compat library that does not fit", {**NO_KERNEL, "driver": fails(803),
                                               "library": COMPAT},
        {"init": "fail image", "compat_active": "warn image"}, "compat library is in use",
    ),
    (
        "a new code", {**NO_KERNEL, "driver": fails(888, "CUDA_ERROR_NEW")},
        {"init": "fail unknown"}, "code 888: CUDA_ERROR_NEW",
    ),
    (
        "no cuInit", {**NO_KERNEL, "driver": DRIVER.model_copy(
            update={"init_code": None, "devices": ()})},
        {"init": "fail unknown"}, "libcuda has no cuInit",
    ),
    # versions
    (
        "525.53 is under 525.60.13",
        {"driver_version": "525.53", "library": library(version="525.53"),
         "torch": Torch(version="2.6.0", cuda="12.4"), "driver": on("9.0", "12.0"),
         **NO_KERNEL, "kernel_code": 35, "kernel_error": "CUDA driver version is insufficient"},
        {"driver_floor": "fail node", "branch_end_of_life": "warn node"},
        "needs driver 525.60.13 or newer; this node has 525.53",
    ),
    (
        "compat stands in", {"driver_version": "550.54.15", "library": COMPAT},
        {"driver_floor": "skip", "compat_active": "warn image", "branch_end_of_life": "warn node"},
        "through the compat library 580.95.05",
    ),
    (
        "compat that does not work stands in for nothing",
        {**NO_KERNEL, "driver_version": "550.54.15", "library": COMPAT, "driver": fails(804)},
        {"init": "fail image", "driver_floor": "fail node", "compat_active": "warn image",
         "branch_end_of_life": "warn node"},
        "/usr/local/cuda/compat",
    ),
    (
        "a stray libcuda that works", {"library": library(version="590.44.01")},
        {"compat_active": "warn image"}, "is not the driver's own; the driver is 580.95.05",
    ),
    (
        "letters in the version",
        {"driver_version": "580.95.05-open", "library": library(version=None)}, {}, "",
    ),
    (
        "no number in the version", {"driver_version": "nightly", "library": library(version=None)},
        {"driver_floor": "error unknown"}, "CUDA works, but neither NVML nor",
    ),
    (
        "no version, and CUDA does not work",
        {**NO_KERNEL, "driver_version": None, "driver": fails(3)},
        {"init": "fail node"}, "the driver did not start",
    ),
    ("an ended branch", {"driver_version": "610.43.02", "library": library(version="610.43.02")},
     {"branch_end_of_life": "warn node"}, "branch 610"),
    (
        "CUDA 14", {"torch": Torch(version="3.0", cuda="14.0")},
        {"unknown_cuda_major": "warn setup"}, "no driver floor is known for CUDA 14.0",
    ),
    (
        "Thor's driver has Tegra's numbers",
        {"driver_version": "580.00", "library": library(version=None), "driver": on("11.0"),
         "arch_list": ("sm_110",)},
        {"driver_floor": "skip"}, "numbers of their own",
    ),
    # torch
    (
        "a CPU build", {**NO_KERNEL, "torch": Torch(version="2.13.0+cpu", cuda=None)},
        {"torch_build": "fail image"}, "torch 2.13.0+cpu was built for CPUs only",
    ),
    (
        "a ROCm build", {**NO_KERNEL, "torch": Torch(version="2.9.1", cuda=None, hip="6.4")},
        {"torch_build": "fail image"}, "for ROCm 6.4",
    ),
    ("no torch", {**NO_KERNEL, "torch": None}, {"torch_build": "error image"}, "no torch"),
    (
        "a CPU build without a driver", {**BARE, "torch": Torch(version="2.13.0+cpu", cuda=None)},
        {"present": "fail setup", "torch_build": "fail image"}, "no NVIDIA driver in reach",
    ),
    # the device
    (
        "Blackwell with an old wheel", {**NO_KERNEL, "driver": on("12.0"),
                                        "arch_list": ("sm_80", "sm_90")},
        {"architecture GPU 0": "fail image"}, "has code for sm_80, sm_90, and NVIDIA H100",
    ),
    (
        "torch that does not say", {"arch_list": ()}, {}, "",
    ),
    (
        "a wrong sum", {"kernel_sum": "nan"}, {"kernel GPU 0": "fail node"}, "a sum came to nan",
    ),
    (
        "an ECC error", {**NO_KERNEL, "kernel_code": 214, "kernel_error": "..."},
        {"kernel GPU 0": "fail node"}, "ECC",
    ),
    (
        "an error by its words", {**NO_KERNEL, "arch_list": (),
                                  "kernel_error": "CUDA error: no kernel image is available"},
        {"kernel GPU 0": "fail image"}, "architecture",
    ),
    (
        "a busy GPU", {**NO_KERNEL, "kernel_code": 46, "kernel_error": "...",
                       "gpu": making.gpu(compute_mode="exclusive_process", processes=(4711,))},
        {"kernel GPU 0": "fail shared"}, "process 4711 holds it",
    ),
    (
        "insufficient, though the floor is reached",
        {**NO_KERNEL, "kernel_code": 35, "kernel_error": "..."},
        {"kernel GPU 0": "fail unknown"}, "too old",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_verdicts(changes: dict[str, Any], expected: dict[str, str], words: str) -> None:
    findings = judged(changes)
    assert short(findings) == expected
    troubles = [finding for finding in findings if finding.outcome is not Outcome.PASS]
    assert words in (troubles[0].cause or "" if troubles else "")
    for finding in troubles:
        assert finding.cause and "  " not in finding.cause
        assert finding.remedy or finding.outcome is Outcome.SKIP
        assert finding.blame or finding.outcome is Outcome.SKIP


def test_a_pass_says_what_was_seen() -> None:
    assert {finding.id.partition(".")[2]: finding.observed for finding in judged()} == {
        "present": "driver 580.95.05, libcuda 580.95.05, NVML",
        "init": "CUDA 13.0 starts",
        "driver_floor": "580.95.05",
        "compat_active": "580.95.05",
        "branch_end_of_life": "R580",
        "torch_build": "2.11.0+cu130 for CUDA 13.0",
        "architecture": "9.0 by sm_90",
        "kernel": "a sum came to 549755289600.0",
    }


def test_the_first_line_of_a_machine_without_a_gpu() -> None:
    finding = judged(BARE)[0]
    assert finding.cause == (
        "no NVIDIA driver in reach: libcuda.so.1 and libnvidia-ml.so.1 are not there and no "
        "/dev/nvidia* exists"
    )
    assert finding.remedy is not None
    for way in ("docker run --gpus all", "nvidia.com/gpu: 1", "--gres=gpu:1", "--thresholds cpu"):
        assert way in finding.remedy


@pytest.mark.parametrize("given", ["all", "compute", "compute,utility", "utility,all"])
def test_capabilities_are_blamed_only_when_one_is_lacking(given: str) -> None:
    environment = {"NVIDIA_DRIVER_CAPABILITIES": given}
    finding = judged({**BARE, "nvml": FACTS.nvml, "environment": environment})[0]
    assert finding.cause == "the driver's libcuda.so.1 is not there"


def test_both_numbers_and_both_ways_out_of_an_old_driver() -> None:
    floor = judged({"driver_version": "550.54.15", "library": library(version="550.54.15")})[2]
    assert (floor.observed, floor.comparison, floor.limit) == (
        "550.54.15", "at_least", "580.65.06",
    )  # fmt: skip
    assert floor.source == "CUDA 13.2.2 release notes, table 2"
    assert floor.remedy is not None
    assert "install driver 580.65.06 or newer on the node" in floor.remedy
    assert "built for CUDA 12 (it needs 525.60.13)" in floor.remedy
    ancient = judged({"driver_version": "390.1", "library": library(version="390.1")})[2]
    assert ancient.remedy is not None and "for an older CUDA" in ancient.remedy


def test_eight_gpus_are_told_apart_where_they_differ() -> None:
    units: list[dict[str, Any]] = [{"subject": f"GPU {number}"} for number in range(8)]
    units[5] |= {"kernel_sum": "1.0"}
    findings = judged(*units)
    assert short(findings) == {"kernel GPU 5": "fail node"}
    assert sum(finding.id == "driver_cuda.kernel" for finding in findings) == 8
    assert sum(finding.id == "driver_cuda.init" for finding in findings) == 1
    units[3] |= {"driver": fails(214), "kernel_sum": None}
    findings = judged(*units)
    assert short(findings) == {"init GPU 3": "fail node", "kernel GPU 5": "fail node"}
    assert sum(finding.id == "driver_cuda.init" for finding in findings) == 8
    everywhere = judged(*({**unit, "driver": fails(802)} for unit in units))
    assert short(everywhere) == {"init": "fail node"}


@pytest.mark.parametrize(
    ("arch_list", "capability", "driver", "covered", "by"),
    [
        (ARCHES, "9.0", "13.0", True, "sm_90"),
        (ARCHES, "8.9", "13.0", True, "sm_80"),  # Ada runs Ampere's code
        (ARCHES, "10.3", "13.0", True, "sm_100"),
        (ARCHES, "12.1", "13.0", True, "sm_120"),
        (ARCHES, "7.0", "13.0", False, "nothing"),  # an earlier minor of the same major
        (ARCHES, "11.0", "13.0", False, "nothing"),
        (("sm_86",), "8.0", "13.0", False, "nothing"),
        (("sm_80", "compute_80"), "9.0", "13.0", True, "compute_80"),
        (("sm_80", "compute_80"), "9.0", "13.2", True, "compute_80"),
        (("sm_80", "compute_80"), "9.0", "12.8", False, "only compute_80"),
        (("sm_80", "compute_80"), "9.0", None, None, "compute_80, if"),
        (("compute_90",), "8.0", "13.0", False, "nothing"),
        (("sm_90a",), "9.0", "13.0", True, "sm_90a"),
        (("sm_100a",), "10.3", "13.0", False, "nothing"),
        (("sm_100f",), "10.3", "13.0", True, "sm_100f"),
        (("compute_90a",), "10.0", "13.0", False, "nothing"),
        (("compute_100f",), "12.0", "13.0", False, "nothing"),
        ((), "9.0", "13.0", None, "does not say"),
        (("gfx942",), "9.0", "13.0", None, "does not say"),
        (ARCHES, None, "13.0", None, "does not say"),
    ],
)
def test_coverage(
    arch_list: tuple[str, ...],
    capability: str | None,
    driver: str | None,
    covered: bool | None,
    by: str,
) -> None:
    seen = coverage(arch_list, capability, driver, "13.0")
    assert seen.covered is covered
    assert seen.by.startswith(by) or by in seen.by


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("580.95.05", (580, 95, 5)),
        ("455.32", (455, 32)),
        ("13", (13,)),
        ("580.95.05-open", (580, 95, 5)),
        ("580.rc1", (580,)),
        ("nightly", ()),
        ("", ()),
        (None, ()),
    ],
)
def test_versions_of_any_shape(text: str | None, numbers: tuple[int, ...]) -> None:
    assert version_numbers(text) == numbers


class Steps:
    """A unit and what happens in it, in order; stands in for libcuda and torch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found: CudaLibrary) -> None:
        self.taken: list[str] = []
        self.driver, self.opened = DRIVER, True
        self.total = float(sum(range(KERNEL_NUMBERS)))
        self.arches = ARCHES
        monkeypatch.setattr(cuda_driver, "load", lambda: cuda_driver.Library(found, None))
        monkeypatch.setattr(cuda_driver, "start", self._start)
        monkeypatch.setattr(device, "load", lambda: self.taken.append("torch"))
        monkeypatch.setattr(device, "open_device", self._open)

    def _start(self, library: cuda_driver.Library) -> CudaDriver:
        self.taken.append("cuInit")
        return self.driver

    def _open(self) -> Steps:
        self.taken.append("device")
        if not self.opened:
            raise device.DeviceError("busy", 46)
        return self

    def arch_list(self) -> tuple[str, ...]:
        return self.arches

    def kernel(self, numbers: int) -> float:
        self.taken.append("kernel")
        assert numbers == KERNEL_NUMBERS
        return self.total

    def observe(self, **changes: Any) -> DriverCudaReading:
        unit = Unit(
            subject="GPU 0", machine=host(), limits=LIMITS, job=making.job(),
            facts=making.gpu_facts(**changes), earlier={}, scratch=Scratch("test"),
            emit=lambda reading: self.taken.append("emit"),
            progress=lambda text: self.taken.append(f"({text})"),
            ready=lambda: self.taken.append("ready"),
        )  # fmt: skip
        seen: DriverCudaReading = CHECK.observe(unit)
        return DriverCudaReading.model_validate(seen.model_dump(mode="json"))  # as it travels


def outcomes(seen: DriverCudaReading) -> set[Outcome]:
    return {finding.outcome for finding in CHECK.judge([seen], LIMITS)}


def test_torch_is_imported_before_the_clock_and_every_step_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps(monkeypatch, LIBRARY)
    assert outcomes(steps.observe()) == {Outcome.PASS}
    assert steps.taken == [
        "emit", "(loading libcuda.so.1)", "emit", "(importing torch)", "torch", "ready",
        "(starting CUDA (cuInit))", "cuInit", "emit", "(running a kernel)", "device", "kernel",
    ]  # fmt: skip


def test_a_driver_that_does_not_answer_nvml_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, LIBRARY)
    seen = steps.observe(nvml=nvml("no_answer"))
    assert steps.taken == ["emit", "ready"]
    assert (seen.library, seen.driver) == (None, None)


def test_an_inventory_that_failed_leaves_cuda_to_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, LIBRARY)
    seen = steps.observe(nvml=nvml("failed", step="import pynvml", error="No module named pynvml"))
    assert seen.cuda_works
    (present,) = [f for f in CHECK.judge([seen], LIMITS) if f.id == "driver_cuda.present"]
    assert (present.outcome, present.blame) == (Outcome.ERROR, Blame.IMAGE)
    assert "nvidia-ml-py" in (present.remedy or "")


def test_without_libcuda_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, GONE)
    steps.observe()
    assert steps.taken == ["emit", "(loading libcuda.so.1)", "emit", "ready"]


@pytest.mark.parametrize(
    ("found", "torch"),
    [(LIBRARY, Torch(version="2.13.0+cpu", cuda=None)), (LIBRARY, None), (STUB, FACTS.torch)],
)
def test_cuda_is_started_without_torch_where_torch_could_not_use_it(
    monkeypatch: pytest.MonkeyPatch, found: CudaLibrary, torch: Torch | None
) -> None:
    steps = Steps(monkeypatch, found)
    steps.observe(torch=torch)
    assert "cuInit" in steps.taken
    assert not {"torch", "device"} & set(steps.taken)


def test_no_kernel_where_cuda_does_not_start_or_nothing_covers_the_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps(monkeypatch, LIBRARY)
    steps.arches = ("sm_120",)
    seen = steps.observe()
    assert seen.arch_list == ("sm_120",)
    assert "kernel" not in steps.taken
    steps.driver = fails(802)
    steps.observe()
    assert steps.taken.count("device") == 1


def test_what_cuda_says_in_place_of_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, LIBRARY)
    steps.opened = False
    seen = steps.observe()
    assert (seen.kernel_code, seen.kernel_error, seen.kernel_sum) == (46, "busy", None)
    assert short(CHECK.judge([seen], LIMITS)) == {"kernel GPU 0": "fail shared"}


def test_a_sum_that_is_no_number_still_gets_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, LIBRARY)
    steps.total = float("nan")
    (finding,) = [f for f in CHECK.judge([steps.observe()], LIMITS) if f.blame is Blame.NODE]
    assert (finding.id, finding.observed) == ("driver_cuda.kernel", "nan")


def test_what_is_known_before_libcuda_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, GONE)
    lost = making.gpu(1, error_code=15, error="GPU is lost")
    seen = steps.observe(
        gpus=(making.gpu(), lost),
        environment={"CUDA_VISIBLE_DEVICES": "0", "SECRET": "x", "NVIDIA_VISIBLE_DEVICES": None},
    )
    assert (seen.subject, seen.gpu) == ("GPU 0", making.gpu())
    assert seen.broken_gpus == ("GPU 1 GPU is lost",)
    assert seen.environment == {"CUDA_VISIBLE_DEVICES": "0"}
    by_file = steps.observe(nvml=nvml("no_library"))
    assert by_file.driver_version == FACTS.gpu_host.kernel_module
