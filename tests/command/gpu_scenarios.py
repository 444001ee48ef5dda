"""GPU nodes, healthy and broken: what driver libraries, files and devices tell there.

A Node is written into a folder; its environment then makes it the machine that a command sees
(with the stand-in word `gpu`). Everything that is not told is real.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu_standins.building import Libraries

DRIVER = "580.95.05"
CU130 = {"torch": "2.11.0+cu130", "torch_cuda": "13.0"}
CU130_ARCH_LIST = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
GEN5_X16 = {
    "link_gen": 1, "link_gen_busy": 5, "link_width": 16, "link_max_gen": 5, "link_max_width": 16,
    "link_gpu_max_gen": 5,
}  # fmt: skip
GEN4_X16 = {**GEN5_X16, "link_gen_busy": 4, "link_max_gen": 4, "link_gpu_max_gen": 4}
H100 = {
    "name": "NVIDIA H100 80GB HBM3", "capability": "9.0", **GEN5_X16, "numa_node": 0,
    "compute_mode": 0, "mig": 0, "c2c": 0, "virtualization": 0, "fabric": 3,
    "memory_total_mib": 81559, "memory_reserved_mib": 540, "memory_used_mib": 0,
    "arch_list": CU130_ARCH_LIST, "pinned_h2d_gb_per_s": 55.1, "pinned_d2h_gb_per_s": 55.6,
    "pageable_h2d_gb_per_s": 12.3,
}  # fmt: skip
A100 = {
    **H100, **GEN4_X16, "name": "NVIDIA A100-SXM4-80GB", "capability": "8.0",
    "pinned_h2d_gb_per_s": 25.0, "pinned_d2h_gb_per_s": 25.4,
}  # fmt: skip


@dataclass(frozen=True)
class Node:
    """One machine with GPUs. The defaults are a healthy one with one H100."""

    gpus: tuple[Mapping[str, Any], ...] = (H100,)
    told: Mapping[str, Any] = field(default_factory=dict)
    """Further lines: "nvmlInit": 18, or "torch"; a value of None takes a line away."""
    driver: str = DRIVER
    module: str = DRIVER
    """Version of the kernel's half of the driver; empty: not loaded."""
    libcuda: str | None = f"driver/libcuda.so.{DRIVER}"
    """Folder and file of the libcuda that is found first."""
    nvml: bool = True
    missing: tuple[str, ...] = ()
    """Functions that the libraries do not have."""
    device_nodes: tuple[str, ...] = ("nvidiactl", "nvidia-uvm", "nvidia0")
    others_on_bus: int = 0
    slot_width: int | None = 16
    """Lanes of the port each GPU hangs on; None: hidden, as in a guest."""
    environment: Mapping[str, str | None] = field(default_factory=dict)

    def but(self, **changes: Any) -> Node:
        """The same with other fields; `told` is added to."""
        if "told" in changes:
            changes["told"] = {**self.told, **changes["told"]}
        return dataclasses.replace(self, **changes)

    def gpu(self, index: int, **changes: Any) -> Node:
        """The same with one GPU changed."""
        changed = {**self.gpus[index], **changes}
        return self.but(gpus=(*self.gpus[:index], changed, *self.gpus[index + 1 :]))

    def install(self, folder: Path, libraries: Libraries) -> dict[str, str | None]:
        """Write it; the environment of a command that is to see it."""
        folder.mkdir()
        scenario = folder / "scenario"
        scenario.write_text("".join(f"{key} = {value}\n" for key, value in self._lines(folder)))
        self._write_machine(folder / "machine")
        path = [*self._put_libraries(folder, libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            "STANDIN_GPUS": str(scenario),
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, path)),
            "CUDA_VISIBLE_DEVICES": None,
            "PREFLIGHT_GPU": None,
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            **self.environment,
        }

    def _lines(self, folder: Path) -> list[tuple[str, Any]]:
        lines = {
            "gpus": len(self.gpus), "driver": self.driver, "cuda": 13000,
            "busy_marker": folder / "busy", **CU130,
        }  # fmt: skip
        for index, gpu in enumerate(self.gpus):
            own = {"uuid": uuid(index), "pci_bus_id": bus_id(index), **gpu}
            lines |= {f"gpu{index}.{key}": value for key, value in own.items()}
        return [item for item in {**lines, **self.told}.items() if item[1] is not None]

    def _write_machine(self, root: Path) -> None:
        files = {f"dev/{name}": "" for name in self.device_nodes}
        files["proc/driver/nvidia/version"] = self.module and (
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {self.module}  Tue Sep 23 2025\n"
        )
        files["sys/devices/system/node/node0/cpulist"] = "0-1023\n"
        for index in range(len(self.gpus) + self.others_on_bus):
            port = f"sys/devices/pci0000:{index:02x}/port"
            function = f"{port}/{bus_id(index)}"
            files |= {f"{function}/vendor": "0x10de\n", f"{function}/class": "0x030200\n"}
            if self.slot_width is not None:
                files[f"{port}/max_link_width"] = f"{self.slot_width}\n"
                files[f"{port}/max_link_speed"] = "32.0 GT/s PCIe\n"
        (root / "dev").mkdir(parents=True)
        devices = root / "sys/bus/pci/devices"
        devices.mkdir(parents=True)
        for index in range(len(self.gpus) + self.others_on_bus):
            target = f"../../../devices/pci0000:{index:02x}/port/{bus_id(index)}"
            (devices / bus_id(index)).symlink_to(target)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

    def _put_libraries(self, folder: Path, libraries: Libraries) -> list[str]:
        """Folders for the loader's path, the one that is searched first in front."""
        driver = folder / "driver"
        driver.mkdir()
        if self.nvml:
            missing = tuple(name for name in self.missing if name.startswith("nvml"))
            shutil.copy(libraries.nvml(missing), driver / "libnvidia-ml.so.1")
        if self.libcuda is None:
            return [str(driver)]
        # A copy, since the process's map of files shows the file that links lead to.
        file = folder / self.libcuda
        file.parent.mkdir(parents=True, exist_ok=True)
        missing = tuple(name for name in self.missing if name.startswith("cu"))
        shutil.copy(libraries.cuda(missing), file)
        if file.name != "libcuda.so.1":
            (file.parent / "libcuda.so.1").symlink_to(file.name)
        return [str(file.parent), str(driver)]


def uuid(index: int) -> str:
    """Of a GPU."""
    return f"GPU-{index:08x}-1111-2222-3333-444444444444"


def mig_uuid(index: int, place: int) -> str:
    """Of a slice of a GPU."""
    return f"MIG-{index:08x}-1111-2222-3333-{place:012x}"


def bus_id(index: int) -> str:
    """Where a GPU is on the PCI bus."""
    return f"0000:{0x1B + index:02x}:00.0"


def several(*gpus: Mapping[str, Any]) -> Node:
    """A node with these GPUs, all of them ours."""
    nodes = tuple(f"nvidia{index}" for index in range(len(gpus)))
    return Node(gpus=gpus, device_nodes=("nvidiactl", "nvidia-uvm", *nodes))


HEALTHY = Node()
TWO = several(H100, H100)
EIGHT = several(*[H100] * 8)

OLD_DRIVER = Node(
    driver="570.124.06", module="570.124.06", libcuda="driver/libcuda.so.570.124.06",
    told={"cuda": 12080, "gpu.open": 35},
)  # fmt: skip
"""Under the floor of torch's CUDA 13: the driver starts, the runtime in torch refuses it."""

COMPAT_TOO_OLD = Node(libcuda="cuda/compat/libcuda.so.570.86.15", told={"cuInit": 803})
"""The image's compat library shadows the newer libcuda of the host."""

COMPAT_ON_GEFORCE = Node(
    libcuda="cuda/compat/libcuda.so.590.44.01", told={"cuInit": 804, "cuda": 13010}
).gpu(0, **GEN4_X16, name="NVIDIA GeForce RTX 4090", capability="8.9", fabric=0)

FABRIC_NOT_READY = TWO.but(told={"cuInit": 802, "gpu0.fabric": 2, "gpu1.fabric": 2})

UNKNOWN_ERROR = Node(told={"cuInit": 999})

WITHOUT_UVM = UNKNOWN_ERROR.but(device_nodes=("nvidiactl", "nvidia0"))

WITHOUT_NVML = Node(nvml=False, environment={"NVIDIA_DRIVER_CAPABILITIES": "compute"})

WITHOUT_LIBCUDA = Node(libcuda=None, environment={"NVIDIA_DRIVER_CAPABILITIES": "utility"})

NO_GPU_GIVEN = Node(
    gpus=(), nvml=False, libcuda=None, device_nodes=(), others_on_bus=8,
    environment={"NVIDIA_VISIBLE_DEVICES": None, "NVIDIA_DRIVER_CAPABILITIES": None},
)  # fmt: skip
"""The host has a driver and eight GPUs; the container was started without any."""

STUB = Node(libcuda="cuda/lib64/stubs/libcuda.so.1", told={"cuInit": 34})

UPGRADED_UNDER_RUNNING_MODULE = Node(
    driver="580.105.08", libcuda="driver/libcuda.so.580.105.08",
    told={"nvmlInit": 18, "cuInit": 803},
)  # fmt: skip

ONE_LOST = EIGHT.but(told={"gpu3.nvmlDeviceGetHandleByIndex": 15})

MIG = Node().gpu(0, mig=1, mig_uuids=f"{mig_uuid(0, 0)} {mig_uuid(0, 1)}")

MIG_WITHOUT_SLICES = TWO.gpu(1, mig=1)

ONLY_MIG_WITHOUT_SLICES = Node(told={"cuInit": 100}).gpu(0, mig=1)

GH200 = Node().gpu(
    0, name="NVIDIA GH200 480GB", c2c=1, link_gen=1, link_gen_busy=1, link_width=1,
    pinned_h2d_gb_per_s=370.0, pinned_d2h_gb_per_s=300.0, pageable_h2d_gb_per_s=60.0,
)  # fmt: skip

VGPU = Node().gpu(
    0, name="NVIDIA A10-24Q", capability="8.6", virtualization=2, pinned_h2d_gb_per_s=9.0,
    pinned_d2h_gb_per_s=9.0, link_gen=None, link_gen_busy=None, link_width=None,
    link_max_gen=None, link_max_width=None, link_gpu_max_gen=None, fabric=None,
)  # fmt: skip

GEN5_AT_GEN3 = Node().gpu(
    0, link_gen_busy=3, pinned_h2d_gb_per_s=12.3, pinned_d2h_gb_per_s=12.8,
    pageable_h2d_gb_per_s=9.0,
)  # fmt: skip

X16_AT_X8 = Node().gpu(0, link_width=8, pinned_h2d_gb_per_s=27.0, pinned_d2h_gb_per_s=27.4)

T4_IN_AN_X8_SLOT = Node(slot_width=8).gpu(
    0, name="Tesla T4", capability="7.5", link_gen_busy=3, link_max_gen=3, link_gpu_max_gen=3,
    link_width=8, pinned_h2d_gb_per_s=5.83, pinned_d2h_gb_per_s=6.14, pageable_h2d_gb_per_s=5.0,
    fabric=0,
)  # fmt: skip
"""NVML tells the card's 16 lanes as the most, whatever the slot has."""

IN_A_GEN4_SLOT = Node().gpu(
    0, link_gen_busy=4, link_max_gen=4, pinned_h2d_gb_per_s=25.5, pinned_d2h_gb_per_s=25.9
)

LINK_READ_LOW = Node().gpu(0, link_gen_busy=4)
"""NVML says less than the copies prove: one witness against the link."""

SLOW = Node().gpu(0, pinned_h2d_gb_per_s=31.0, pinned_d2h_gb_per_s=30.0)

FORBIDDEN = EIGHT.but(
    told={f"gpu{index}.nvmlDeviceGetHandleByIndex": 4 for index in range(2, 8)},
    device_nodes=("nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(8))),
)
"""A Slurm job: all device nodes are there, and the cgroup denies six."""

TWO_OF_EIGHT = TWO.but(others_on_bus=6)

HIDDEN = Node(environment={"CUDA_VISIBLE_DEVICES": ""})

MIXED = several(H100, A100)

UNKNOWN_MODEL = Node().gpu(0, name="NVIDIA X900 192GB HBM5")

OLD_LIBRARIES = Node(
    driver="525.147.05", module="525.147.05", libcuda="driver/libcuda.so.525.147.05",
    missing=(
        "nvmlDeviceGetC2cModeInfoV", "nvmlDeviceGetGpuFabricInfoV", "cuDeviceGetUuid_v2",
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
    ),
    told={"torch": "2.6.0+cu124", "torch_cuda": "12.4", "cuda": 12000},
)  # fmt: skip
"""A driver from before some of the calls, with a torch that it can run."""

CPU_WHEEL = Node(told={"torch": "2.13.0+cpu", "torch_cuda": None})

NOT_COVERED = Node(told={"torch": "2.6.0+cu124", "torch_cuda": "12.4"}).gpu(
    0, name="NVIDIA B200", capability="10.0", arch_list="sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
)

WITHOUT_TORCH = Node(told={"torch": None})

COMPUTES_WRONGLY = TWO.but(told={"gpu1.kernel_wrong_by": 1})

CORRUPTS = TWO.but(told={"gpu1.verify": "differs"})

OCCUPIED = TWO.gpu(1, processes="4242 4243", memory_used_mib=31_000)

PROHIBITED = Node(told={"gpu.open": 46}).gpu(0, compute_mode=2)

COPY_REFUSED = TWO.but(told={"gpu1.pinned_h2d": 719})

NVML_HANGS = Node(told={"nvmlInit": "hang"})
CUINIT_HANGS = Node(told={"cuInit": "hang"})
ONE_NVML_CALL_HANGS = TWO.but(told={"gpu1.nvmlDeviceGetName": "hang"})
ONE_CUINIT_HANGS = EIGHT.but(told={"gpu3.cuInit": "hang"})
ONE_KERNEL_HANGS = EIGHT.but(told={"gpu3.kernel": "hang"})
ONE_COPY_HANGS = EIGHT.but(told={"gpu3.pinned_d2h": "hang"})
