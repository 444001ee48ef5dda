"""What libcuda, the user half of the driver, says of itself and of its devices. Pure records.

None means "asked, not answered". `preflight.machine.cuda_driver` fills them in.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from preflight.gpu_facts import GpuFact


class CudaLibrary(GpuFact):
    """The libcuda.so.1 that this process's loader finds, which a training job's finds too."""

    loaded: bool
    error: str | None = Field(description="the loader's words where it is not loaded")
    path: str | None = Field(description="the file that was mapped, links resolved")
    version: str | None = Field(
        description="driver version in the file's name: 580.95.05; None where it names none"
    )
    compat: bool = Field(description="it lies in a compat folder: forward compatibility")
    stub: bool = Field(description="it lies in a stubs folder: made for linking, runs nothing")


class CudaGpu(GpuFact):
    """One device as libcuda tells it."""

    ordinal: int
    name: str | None
    uuid: str | None = Field(description="as NVML writes it, without its GPU- or MIG-")
    compute_capability: str | None = Field(description='e.g. "9.0"')
    integrated: bool | None = Field(description="shares the host's memory (Jetson, GB10)")
    pci_bus_id: str | None = Field(description="as sysfs writes it: 0000:1b:00.0")


class CudaDriver(GpuFact):
    """What libcuda answered."""

    cuda_version: str | None = Field(description="newest CUDA it serves, e.g. 13.0")
    init_code: int | None = Field(description="of cuInit; 0 is well, None: no such function")
    init_name: str | None = Field(description="libcuda's own name for that code")
    device_count: int | None = Field(description="None when cuInit or the count failed")
    count_code: int | None = Field(default=None, description="of cuDeviceGetCount, where it failed")
    devices: tuple[CudaGpu, ...]
    unanswered: Mapping[str, str] = Field(
        default={}, description="function: code 1, or missing in an older driver"
    )

    @property
    def works(self) -> bool:
        """CUDA started and has a device."""
        return self.init_code == 0 and bool(self.devices)
