"""A pynvml for tests: the installed binding's constants, exceptions and structures, own answers."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml

GIB = 1 << 30


def refused(code: int) -> pynvml.NVMLError:
    """What the binding raises for an NVML code."""
    return pynvml.NVMLError(code)


def pci_info(bus_id: bytes) -> Any:
    return pynvml.nvmlPciInfo_t(busId=bus_id)


def memory(total: int, used: int, reserved: int) -> Any:
    """Both forms of the question: the first counts the driver's reserve as used."""

    def answer(version: int | None = None) -> Any:
        assert version in (None, pynvml.nvmlMemory_v2)
        return SimpleNamespace(total=total, used=used if version else used + reserved)

    return answer


def fabric(state: int, status: int = 0) -> Any:
    def answer(reference: Any) -> int:
        info = reference._obj
        assert info.version in (pynvml.nvmlGpuFabricInfo_v2, pynvml.nvmlGpuFabricInfo_v3)
        info.state, info.status = state, status
        return 0

    return answer


def field_values(value: int, code: int = 0) -> Any:
    def answer(fields: list[int]) -> Any:
        assert fields == [pynvml.NVML_FI_DEV_C2C_LINK_COUNT]
        return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=value))]

    return answer


def nodes(*numbers: int) -> Any:
    """Memory affinity to these NUMA nodes."""

    def answer(words: int, scope: int) -> Any:
        mask = (ctypes.c_ulonglong * words)()
        for number in numbers:
            mask[number // 64] |= 1 << number % 64
        return mask

    return answer


def process(pid: int) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=GIB)


@dataclass
class FakeGpu:
    """A healthy H100 SXM, but for `changes`: an answer, an exception, or a function that answers.

    `nvmlDeviceGetHandleByIndex` among them is the answer to the handle itself.
    """

    index: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)

    def answers(self) -> dict[str, Any]:
        healthy = {
            "nvmlDeviceGetHandleByIndex": self,
            "nvmlDeviceGetUUID": f"GPU-{self.index:08x}",
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetPciInfo": pci_info(f"00000000:{0x1B + self.index:02X}:00.0".encode()),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetCurrPcieLinkGeneration": 1,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMemoryAffinity": nodes(1),
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetMaxMigDeviceCount": 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": refused(6),
            "nvmlDeviceGetC2cModeInfoV": SimpleNamespace(isC2cEnabled=0),
            "nvmlDeviceGetFieldValues": field_values(0),
            "nvmlDeviceGetVirtualizationMode": 0,
            "nvmlDeviceGetGpuFabricInfoV": fabric(3),
            "nvmlDeviceGetMemoryInfo": memory(total=80 * GIB, used=2 * GIB, reserved=GIB // 2),
            "nvmlDeviceGetComputeRunningProcesses": [process(4321), process(77)],
            "nvmlDeviceGetComputeRunningProcesses_v2": [process(4321), process(77)],
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": refused(2),
        }
        return {**healthy, **self.changes}


def fake_nvml(*gpus: FakeGpu, lacks: tuple[str, ...] = (), **changes: Any) -> ModuleType:
    """The module. `changes` are answers of functions that are about no GPU; `lacks` is left out."""
    module = ModuleType("pynvml")
    for name in dir(pynvml):
        if not name.startswith("nvml") or not callable(getattr(pynvml, name)):
            setattr(module, name, getattr(pynvml, name))
    module.nvmlPciInfo_t = pynvml.nvmlPciInfo_t  # type: ignore[attr-defined]

    def add(name: str, about_gpu: bool) -> None:
        def function(*arguments: Any) -> Any:
            if about_gpu:
                gpu, *arguments = arguments  # type: ignore[assignment]
                answer = gpu.answers()[name]
            else:
                answer = system[name]
            if callable(answer):
                answer = answer(*arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

        setattr(module, name, function)

    for name in FakeGpu().answers():
        add(name, about_gpu=True)
    by_uuid = {str(gpu.answers()["nvmlDeviceGetUUID"]).encode(): gpu for gpu in gpus}
    system = {
        "nvmlInit": None,
        "nvmlSystemGetDriverVersion": "580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": 13000,
        "nvmlDeviceGetCount": len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: gpus[index].answers()[
            "nvmlDeviceGetHandleByIndex"
        ],
        "nvmlDeviceGetHandleByUUID": lambda uuid: by_uuid.get(uuid, refused(6)),
        **changes,
    }
    for name in system:
        add(name, about_gpu=False)
    for name in lacks:
        delattr(module, name)
    return module
