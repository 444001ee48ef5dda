"""What is known of the GPUs before anything is measured on them. Pure records.

None means "asked, not answered"; `unanswered` then says why. `preflight.machine` fills them in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

GPU_SUBJECT = "GPU "


class GpuFact(BaseModel):
    """A frozen group of facts."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


class PcieLink(GpuFact):
    """A GPU's PCIe link. An idle GPU may run at a lower generation: read it during a copy."""

    gen: int | None = Field(description="generation negotiated now")
    width: int | None = Field(description="lanes negotiated now")
    max_gen: int | None = Field(description="the most that this GPU reaches in this slot")
    max_width: int | None = Field(description="lanes, likewise")
    gpu_max_gen: int | None = Field(description="the most that the GPU alone could do")
    slot_width: int | None = Field(
        default=None, description="lanes of the port it hangs on, where sysfs shows it"
    )


class Gpu(GpuFact):
    """One GPU as NVML tells it."""

    index: int = Field(description="as NVML counts: in the order of the PCI bus")
    uuid: str | None
    name: str | None
    pci_bus_id: str | None = Field(description="as sysfs writes it: 0000:1b:00.0")
    compute_capability: str | None = Field(description='e.g. "9.0"')
    link: PcieLink
    numa_node: int | None = Field(description="node of the host memory nearest to it")
    compute_mode: Literal["default", "exclusive_thread", "prohibited", "exclusive_process"] | None
    mig: bool | None = Field(description="MIG mode is on")
    mig_slices: tuple[str, ...] = Field(description="UUIDs of the MIG devices we may use")
    c2c: bool | None = Field(description="joined to the CPU by NVLink-C2C, not by PCIe")
    integrated: bool | None = Field(description="shares the host's memory (Jetson, GB10)")
    virtualization: Literal["none", "passthrough", "vgpu"] | None = Field(
        description="passthrough: a whole GPU in a guest; vgpu: a share of one"
    )
    fabric: str | None = Field(
        description="NVSwitch fabric: not supported, not started, in progress, completed"
    )
    memory_total_gib: float | None
    memory_used_gib: float | None = Field(description="by anyone, without the driver's reserve")
    processes: tuple[int, ...] | None = Field(description="pids that hold a context on it")
    error_code: int | None = Field(
        default=None, description="the NVML code that makes the whole GPU unusable, e.g. 15"
    )
    error: str | None = Field(default=None, description="that code's name, or: no answer in N s")
    unanswered: Mapping[str, str] = Field(
        default={}, description="field: why NVML did not answer it, e.g. not supported"
    )

    @property
    def subject(self) -> str:
        """How findings name it."""
        return f"{GPU_SUBJECT}{self.index}"


class Nvml(GpuFact):
    """What NVML said as a whole."""

    state: Literal["ok", "error", "no_library", "no_answer", "failed"]
    code: int | None = Field(description="NVML's code where the state is error")
    error: str | None = Field(description="the code's name, or what was seen instead")
    step: str | None = Field(description="the call that failed or never came back")
    driver_version: str | None
    forbidden: int = Field(default=0, description="GPUs that it counts and does not let us open")
    cuda_version: str | None = Field(
        description="of whichever libcuda is loaded, compat or not: judge nothing by it"
    )


class GpuHost(GpuFact):
    """What plain files tell of GPUs: no library is asked."""

    kernel_module: str | None = Field(description="version in /proc/driver/nvidia/version")
    device_nodes: tuple[str, ...] = Field(description="/dev/nvidia*, /dev/dxg, ...")
    pci_gpus: tuple[str, ...] = Field(description="NVIDIA display functions on the PCI bus")


class CudaDevice(GpuFact):
    """One device that CUDA may use: a GPU, or one MIG slice of it."""

    subject: str
    cuda_id: str = Field(description="what CUDA_VISIBLE_DEVICES calls it")
    gpu: Gpu


def is_gpu_node(name: str) -> bool:
    """Whether a name in /dev is a GPU's own: /dev/nvidia0."""
    number = name.removeprefix("/dev/nvidia")
    return number.isascii() and number.isdigit()


def cuda_devices(gpus: Sequence[Gpu], visible: str | None) -> tuple[CudaDevice, ...]:
    """The devices a training job here would get, `visible` being CUDA_VISIBLE_DEVICES.

    As the CUDA programming guide has it: numbers, or UUIDs that may be cut short; the list ends at
    the first entry that names nothing, and a duplicate empties it. Numbers count in the order of
    the PCI bus, as CUDA does among GPUs of one model (others: with CUDA_DEVICE_ORDER=PCI_BUS_ID).
    """
    all_devices = [device for gpu in gpus for device in _devices_of(gpu)]
    if visible is None:
        return tuple(device for device in all_devices if _usable(device))
    chosen: list[CudaDevice] = []
    for entry in visible.split(","):
        found = _named(entry.strip(), all_devices)
        if found is None:
            break
        if found in chosen:
            return ()
        chosen.append(found)
    return tuple(device for device in chosen if _usable(device))


def _devices_of(gpu: Gpu) -> list[CudaDevice]:
    """Also of a GPU that does not answer: it keeps its number."""
    if not gpu.mig:
        return [CudaDevice(subject=gpu.subject, cuda_id=gpu.uuid or "", gpu=gpu)]
    return [
        CudaDevice(subject=f"{gpu.subject} MIG {number}", cuda_id=uuid, gpu=gpu)
        for number, uuid in enumerate(gpu.mig_slices)
    ]


def _usable(device: CudaDevice) -> bool:
    return device.gpu.error is None and bool(device.cuda_id)


def _named(entry: str, devices: Sequence[CudaDevice]) -> CudaDevice | None:
    if entry.isdecimal() and entry.isascii():
        return devices[int(entry)] if int(entry) < len(devices) else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    fitting = [device for device in devices if device.cuda_id.startswith(entry)]
    return fitting[0] if len(fitting) == 1 else None
