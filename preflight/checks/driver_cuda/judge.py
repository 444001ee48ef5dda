"""The driver_cuda check's verdict: what every unit saw in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.checks.driver_cuda.coverage import coverage, version_numbers
from preflight.checks.driver_cuda.presence import explains_the_rest, presence
from preflight.checks.driver_cuda.reading import DriverCudaLimits, DriverCudaReading
from preflight.checks.driver_cuda.versions import required_driver, versions
from preflight.diagnosis.cuda_circumstances import Around
from preflight.diagnosis.cuda_codes import explain
from preflight.judge import Miss, holds
from preflight.model import Finding
from preflight.outcome import Blame, Outcome

_NO_DEVICE = 100
_INSUFFICIENT_DRIVER = 35


def judge(readings: Sequence[DriverCudaReading], limits: DriverCudaLimits) -> list[Finding]:
    """Node-level findings once, kernel and architecture for every device."""
    node = next((seen for seen in readings if seen.driver is not None), readings[0])
    findings = [presence(node)]
    if not explains_the_rest(node):
        findings += [*_init(readings, limits), *versions(node, limits)]
    findings.append(_torch_build(node))
    if explains_the_rest(node):
        return findings
    too_old = any(f.id == "driver_cuda.driver_floor" and _bad(f) for f in findings)
    for seen in readings:
        if seen.cuda_works and seen.torch_cuda:
            findings += _device(seen, limits, too_old)
    return findings


def _bad(finding: Finding) -> bool:
    return finding.outcome in (Outcome.FAIL, Outcome.ERROR)


def around(seen: DriverCudaReading, limits: DriverCudaLimits) -> Around:
    """What else is known where CUDA failed."""
    library, gpu, floor = seen.library, seen.gpu, required_driver(seen, limits)
    driver = version_numbers(seen.driver_version)
    return Around(
        driver_version=seen.driver_version,
        library_loaded=None if library is None else library.loaded,
        library_version=library.version if library else None,
        library_path=library.path if library else None,
        compat=library is not None and library.compat,
        required_driver=floor if driver and driver < version_numbers(floor) else None,
        nvml_works=seen.nvml is not None and seen.nvml.state == "ok",
        container=seen.container,
        listed=gpu is not None,
        visible_devices=seen.environment.get("CUDA_VISIBLE_DEVICES"),
        device_nodes=None if seen.tegra else seen.gpu_host.device_nodes,
        broken_gpus=seen.broken_gpus,
        closed_by_mig=seen.closed_by_mig,
        compute_mode=gpu.compute_mode if gpu else None,
        processes=(gpu.processes or ()) if gpu else (),
        fabric=gpu.fabric if gpu else None,
        mps=seen.environment.get("CUDA_MPS_PIPE_DIRECTORY"),
    )


def _init(readings: Sequence[DriverCudaReading], limits: DriverCudaLimits) -> list[Finding]:
    """One finding where all units agree, else one for each."""
    started = [seen for seen in readings if seen.driver is not None]
    alike = len({_code(seen) for seen in started}) == 1
    return [
        _started(seen, limits, None if alike else seen.subject)
        for seen in (started[:1] if alike else started)
    ]


def _code(seen: DriverCudaReading) -> int | None:
    driver = seen.driver
    if driver is None or driver.init_code != 0:
        return driver.init_code if driver else None
    return driver.count_code or (0 if driver.devices else _NO_DEVICE)


def _started(seen: DriverCudaReading, limits: DriverCudaLimits, subject: str | None) -> Finding:
    driver, library, code = seen.driver, seen.library, _code(seen)
    assert driver is not None
    if code == 0:
        starts = f"CUDA {driver.cuda_version or ''} starts".replace("  ", " ")
        return Finding(
            id="driver_cuda.init", outcome=Outcome.PASS, subject=subject, observed=starts
        )
    if library is not None and library.stub:
        code = 34  # old stubs say something else
    name = driver.init_name if code == driver.init_code else None
    fault = explain(code, "" if code else "libcuda has no cuInit", around(seen, limits), name)
    miss = Miss(fault.cause, fault.remedy, fault.blame, fault.outcome)
    return holds("driver_cuda.init", False, fault.title or None, miss, subject=subject)


def _torch_build(seen: DriverCudaReading) -> Finding:
    torch = seen.torch
    if torch is None:
        miss = Miss(
            "no torch is installed in this image: whether a job can run here was not tried",
            "run the gate in the image of the training job, or install torch 2.6 or later",
            Blame.IMAGE, Outcome.ERROR,
        )  # fmt: skip
        return holds("driver_cuda.torch_build", False, None, miss)
    kind = f"for ROCm {torch.hip} (AMD)" if torch.hip else "for CPUs only"
    miss = Miss(
        f"torch {torch.version} was built {kind}: it cannot use an NVIDIA GPU",
        "install a CUDA build of torch in the image (pip install torch --index-url "
        "https://download.pytorch.org/whl/cu126, or cu130 where the driver is 580.65.06 or newer)",
        Blame.IMAGE,
    )
    observed = f"{torch.version} for CUDA {torch.cuda}" if torch.cuda else torch.version
    return holds("driver_cuda.torch_build", torch.cuda is not None, observed, miss)


def _device(seen: DriverCudaReading, limits: DriverCudaLimits, too_old: bool) -> list[Finding]:
    assert seen.driver is not None and seen.torch is not None
    cover = coverage(seen.arch_list, seen.capability, seen.driver.cuda_version, seen.torch.cuda)
    findings = []
    if cover.covered is not None:
        name = seen.driver.devices[0].name or "this GPU"
        miss = Miss(
            f"torch {seen.torch.version} has code for {', '.join(seen.arch_list)}, and {name} is "
            f"{seen.capability}: {cover.by}",
            f"use an image whose torch was built for compute capability {seen.capability}",
            Blame.IMAGE,
        )
        observed = f"{seen.capability} by {cover.by}" if cover.covered else seen.capability
        findings.append(
            holds("driver_cuda.architecture", cover.covered, observed, miss, subject=seen.subject)
        )
    kernel = None if cover.covered is False else _kernel(seen, limits, too_old)
    return findings if kernel is None else [*findings, kernel]


def _kernel(seen: DriverCudaReading, limits: DriverCudaLimits, too_old: bool) -> Finding | None:
    id, subject = "driver_cuda.kernel", seen.subject
    if seen.kernel_error is not None or seen.kernel_sum is None:
        text = seen.kernel_error or "no kernel was run"
        fault = explain(seen.kernel_code, text, around(seen, limits))
        if too_old and fault.code == _INSUFFICIENT_DRIVER:
            return None  # the floor says it already
        miss = Miss(fault.cause, fault.remedy, fault.blame, fault.outcome)
        return holds(id, False, fault.title or None, miss, subject=subject)
    right = seen.kernel_sum == seen.kernel_expected
    miss = Miss(
        f"the GPU computes wrongly: a sum came to {seen.kernel_sum}, and it is "
        f"{seen.kernel_expected}",
        "take the node out of service and have the GPU tested (dcgmi diag -r 3), then replaced",
        Blame.NODE,
    )
    observed = f"a sum came to {seen.kernel_sum}"
    return holds(id, right, observed if right else seen.kernel_sum, miss, subject=subject)
