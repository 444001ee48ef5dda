"""What the driver_cuda check holds the node to, and what one of its units saw."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from preflight.checks.contract import Limits, Reading
from preflight.checks.driver_cuda.coverage import version_numbers
from preflight.cuda_facts import CudaDriver, CudaLibrary
from preflight.facts import Torch
from preflight.gpu_facts import Gpu, GpuHost, Nvml

Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)+$")]

# These GPUs are in NVIDIA's Tegra (Jetson, Drive) and nowhere else.
_TEGRA = {"5.3", "6.2", "7.2", "8.7", "10.1", "11.0"}


class DriverCudaLimits(Limits):
    """What the driver has to be."""

    min_driver_by_cuda_major: dict[str, Version] = Field(
        description="oldest driver that runs what was built with that CUDA, whatever its minor"
    )
    end_of_life_branches: tuple[int, ...] = Field(
        description="driver branches that get no more fixes: a warning"
    )
    process_memory_gib: float = Field(gt=0, description="one GPU's process, with torch and CUDA")
    max_memory_share: float = Field(gt=0, le=1, description="of the memory headroom, predicted")


class DriverCudaReading(Reading):
    """The driver, CUDA and torch as one process with one GPU (or all, or none) sees them."""

    subject: str | None = Field(description="the GPU; None where NVML gave none")
    driver_version: str | None = Field(description="of the kernel's half of the driver")
    nvml: Nvml | None
    gpu_host: GpuHost
    gpu: Gpu | None
    closed_by_mig: tuple[str, ...] = Field(description="MIG is on, and no slice is ours")
    broken_gpus: tuple[str, ...] = Field(description="what NVML calls unusable, and its word")
    torch: Torch | None
    container: str | None
    environment: dict[str, str] = Field(description="what of NVIDIA's and CUDA's is set")
    library: CudaLibrary | None = Field(default=None, description="None: not looked for")
    driver: CudaDriver | None = Field(default=None, description="None: CUDA was not started")
    arch_list: tuple[str, ...] = Field(default=(), description="empty: torch does not say")
    kernel_sum: str | None = Field(default=None, description="text, since it may be no number")
    kernel_expected: str | None = None
    kernel_code: int | None = None
    kernel_error: str | None = Field(default=None, description="CUDA's words in place of a sum")

    @property
    def cuda_works(self) -> bool:
        """CUDA started and has a device."""
        return self.driver is not None and self.driver.works

    @property
    def torch_cuda(self) -> str | None:
        """The CUDA that torch was built with."""
        return self.torch.cuda if self.torch else None

    @property
    def capability(self) -> str | None:
        """Compute capability of this unit's device."""
        if self.cuda_works and self.driver is not None:
            return self.driver.devices[0].compute_capability
        return self.gpu.compute_capability if self.gpu else None

    @property
    def wsl(self) -> bool:
        """Under WSL the GPU is /dev/dxg, and NVML is that of Windows."""
        return "/dev/dxg" in self.gpu_host.device_nodes

    @property
    def tegra(self) -> bool:
        """Jetson and its kin: a driver with numbers of its own, and often without NVML."""
        nodes = self.gpu_host.device_nodes
        return self.capability in _TEGRA or any("/nvhost-" in node for node in nodes)

    @property
    def foreign_library(self) -> bool:
        """The libcuda in use is not the driver's own: forward compatibility, or a stray one."""
        library = self.library
        if library is None or not library.loaded:
            return False
        ours, driver = version_numbers(library.version), version_numbers(self.driver_version)
        return library.compat or bool(ours and driver and ours != driver)
