"""Is the driver new enough for the CUDA that torch was built with? Pure.

One number for each CUDA major decides (minor-version compatibility). Whole versions are compared:
525.53 is under 525.60.13. NVML's "CUDA version" is never asked: a compat library inflates it.
"""

from __future__ import annotations

from preflight.checks.driver_cuda.coverage import version_numbers
from preflight.checks.driver_cuda.reading import DriverCudaLimits, DriverCudaReading
from preflight.judge import Miss, holds, missed
from preflight.model import Finding
from preflight.outcome import Blame, Outcome


def versions(seen: DriverCudaReading, limits: DriverCudaLimits) -> list[Finding]:
    """Floor, compat library and branch."""
    findings = [*_floor(seen, limits)]
    if seen.library is not None and seen.library.loaded:
        findings.append(_compat(seen))
    if version_numbers(seen.driver_version):
        findings.append(_branch(seen, limits))
    return findings


def required_driver(seen: DriverCudaReading, limits: DriverCudaLimits) -> str | None:
    """The floor for torch's CUDA; None without torch's CUDA or for a major that is not listed."""
    major = version_numbers(seen.torch_cuda)[:1]
    return limits.min_driver_by_cuda_major.get(str(major[0])) if major else None


def _floor(seen: DriverCudaReading, limits: DriverCudaLimits) -> list[Finding]:
    if not version_numbers(seen.torch_cuda):
        return []
    floor = required_driver(seen, limits)
    if floor is None:
        known = ", ".join(sorted(limits.min_driver_by_cuda_major, key=int))
        miss = Miss(
            f"no driver floor is known for CUDA {seen.torch_cuda} (known: {known}); whether it "
            "runs is told by the kernel alone",
            "update preflight, or set driver_cuda.min_driver_by_cuda_major for it",
            Blame.SETUP, Outcome.WARN,
        )  # fmt: skip
        return [holds("driver_cuda.unknown_cuda_major", False, seen.torch_cuda, miss)]
    major = version_numbers(seen.torch_cuda)[0]
    finding = Finding(
        id="driver_cuda.driver_floor", outcome=Outcome.PASS, observed=seen.driver_version,
        comparison="at_least", limit=floor,
        source=limits.source(f"min_driver_by_cuda_major.{major}"),
    )  # fmt: skip
    if seen.tegra:
        cause = "Tegra's drivers have numbers of their own: CUDA's start and a kernel decide"
        return [finding.model_copy(update={"outcome": Outcome.SKIP, "cause": cause})]
    driver = version_numbers(seen.driver_version)
    if not driver:
        return [missed(finding, _unknown())] if seen.cuda_works else []
    if driver >= version_numbers(floor):
        return [finding]
    if seen.foreign_library and seen.cuda_works and seen.library is not None:
        cause = (
            f"driver {seen.driver_version} is older than {floor}, but CUDA starts through the "
            f"compat library {seen.library.version or seen.library.path}"
        )
        return [finding.model_copy(update={"outcome": Outcome.SKIP, "cause": cause})]
    return [missed(finding, _too_old(seen, limits, floor))]


def _unknown() -> Miss:
    return Miss(
        "CUDA works, but neither NVML nor /proc/driver/nvidia/version tells the driver's version",
        "give the container the capability utility (NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
        Blame.UNKNOWN,
        Outcome.ERROR,
    )


def _too_old(seen: DriverCudaReading, limits: DriverCudaLimits, floor: str) -> Miss:
    driver = version_numbers(seen.driver_version)
    older = [
        int(major)
        for major, least in limits.min_driver_by_cuda_major.items()
        if version_numbers(least) <= driver
    ]
    image = (
        f"an image whose torch was built for CUDA {max(older)} "
        f"(it needs {limits.min_driver_by_cuda_major[str(max(older))]})"
        if older
        else "an image whose torch was built for an older CUDA"
    )
    return Miss(
        f"torch was built with CUDA {seen.torch_cuda}, which needs driver {floor} or newer; this "
        f"node has {seen.driver_version}",
        f"install driver {floor} or newer on the node, or use {image}",
        Blame.NODE,
    )


def _compat(seen: DriverCudaReading) -> Finding:
    library = seen.library
    assert library is not None
    own = seen.driver_version or "of unknown version"
    kind = "a compat library" if library.compat else "not the driver's own"
    miss = Miss(
        f"libcuda {library.version or ''} at {library.path} is {kind}; the driver is {own}. "
        "It works only with some drivers and some GPUs, and hides the driver's own",
        "keep it only where the driver is older than the image's CUDA; else take its folder out of "
        "LD_LIBRARY_PATH and ld.so.conf",
        Blame.IMAGE, Outcome.WARN,
    )  # fmt: skip
    observed = library.version or library.path
    return holds("driver_cuda.compat_active", not seen.foreign_library, observed, miss)


def _branch(seen: DriverCudaReading, limits: DriverCudaLimits) -> Finding:
    branch = version_numbers(seen.driver_version)[0]
    miss = Miss(
        f"driver {seen.driver_version} is of branch {branch}, which gets no more fixes",
        "move the node to a branch with long-term support",
        Blame.NODE, Outcome.WARN,
    )  # fmt: skip
    finding = holds(
        "driver_cuda.branch_end_of_life",
        branch not in limits.end_of_life_branches,
        f"R{branch}",
        miss,
    )
    return finding.model_copy(update={"source": limits.source("end_of_life_branches")})
