"""The stand-in libraries themselves, asked by nvidia-ml-py and ctypes in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.command.gpu_scenarios import EIGHT, H100, HEALTHY, Node, bus_id, mig_uuid, uuid
from tests.gpu_standins.building import Libraries

ASK = """
import ctypes, json
import pynvml

def ask(name, *arguments):
    try:
        answer = getattr(pynvml, name)(*arguments)
    except pynvml.NVMLError as error:
        return -error.value
    return answer.decode() if isinstance(answer, bytes) else answer
"""
CUDA = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
number, text = ctypes.c_int(), ctypes.create_string_buffer(96)

def ask(name, *arguments):
    return getattr(cuda, name)(*arguments)
"""


@pytest.fixture
def run(libraries: Libraries, tmp_path: Path) -> Any:
    """Run code on a node; what its last line prints, read as JSON."""

    def run(node: Node, code: str, timeout: float = 20, **environment: str) -> Any:
        usual = {k: v for k, v in os.environ.items() if not k.startswith("CUDA")}
        changes = node.install(tmp_path / "node", libraries)
        merged = {**usual, **{k: v for k, v in changes.items() if v is not None}, **environment}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=merged, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_gpu_tells_what_the_scenario_says(run: Any) -> None:
    code = (
        ASK
        + """
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
same = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(gpu))
memory = pynvml.nvmlDeviceGetMemoryInfo(same, pynvml.nvmlMemory_v2)
fabric = pynvml.c_nvmlGpuFabricInfo_v2_t()
pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(fabric))
bus = pynvml.nvmlDeviceGetPciInfo(gpu).busId
print(json.dumps({
    "driver": ask("nvmlSystemGetDriverVersion"),
    "cuda": ask("nvmlSystemGetCudaDriverVersion"),
    "count": ask("nvmlDeviceGetCount"),
    "uuid": ask("nvmlDeviceGetUUID", same),
    "name": ask("nvmlDeviceGetName", same),
    "bus": bus if isinstance(bus, str) else bus.decode(),
    "capability": ask("nvmlDeviceGetCudaComputeCapability", gpu),
    "link": [ask("nvmlDeviceGet" + name, gpu) for name in (
        "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration",
        "MaxPcieLinkWidth", "GpuMaxPcieLinkGeneration")],
    "memory": [part >> 20 for part in (memory.total, memory.reserved, memory.used, memory.free)],
    "old_memory": ask("nvmlDeviceGetMemoryInfo", gpu).used >> 20,
    "nodes": list(ask("nvmlDeviceGetMemoryAffinity", gpu, 2, 0)),
    "mode": ask("nvmlDeviceGetComputeMode", gpu),
    "mig": ask("nvmlDeviceGetMigMode", gpu),
    "virtual": ask("nvmlDeviceGetVirtualizationMode", gpu),
    "c2c": ask("nvmlDeviceGetC2cModeInfoV", gpu).isC2cEnabled,
    "fabric": fabric.state,
    "pids": [process.pid for process in ask("nvmlDeviceGetComputeRunningProcesses", gpu)],
    "second": ask("nvmlDeviceGetHandleByIndex", 1),
}))
"""
    )
    node = HEALTHY.gpu(0, processes="41 42 43", memory_used_mib=7, numa_node=65, virtualization=1)
    assert run(node, code) == {
        "driver": "580.95.05", "cuda": 13000, "count": 1, "uuid": uuid(0),
        "name": "NVIDIA H100 80GB HBM3", "bus": "00000000:1B:00.0", "capability": [9, 0],
        "link": [1, 16, 5, 16, 5], "memory": [81559, 540, 7, 81012], "old_memory": 547,
        "nodes": [0, 2], "mode": 0, "mig": [0, 0], "virtual": 1, "c2c": 0, "fabric": 3,
        "pids": [41, 42, 43], "second": -2,
    }  # fmt: skip


def test_codes_are_for_one_gpu_or_for_all_and_what_is_not_told_is_not_supported(run: Any) -> None:
    code = (
        ASK
        + """
pynvml.nvmlInit()
handles = [ask("nvmlDeviceGetHandleByIndex", index) for index in range(8)]
print(json.dumps([
    [ask("nvmlDeviceGetUUID", handles[index]) for index in (2, 3)],
    [ask("nvmlDeviceGetName", handles[index]) for index in (2, 3)],
    handles[5],
    ask("nvmlDeviceGetMigMode", handles[0]),
]))
"""
    )
    told = {
        "gpu3.nvmlDeviceGetUUID": 15, "gpu.nvmlDeviceGetName": 4,
        "gpu5.nvmlDeviceGetHandleByIndex": 15, "gpu0.mig": None,
    }  # fmt: skip
    assert run(EIGHT.but(told=told), code) == [[uuid(2), -15], [-4, -4], -15, -3]


def test_nothing_answers_before_a_start_that_went_well(run: Any) -> None:
    code = (
        ASK
        + """
print(json.dumps([ask("nvmlInit"), ask("nvmlDeviceGetCount")]))
"""
    )
    assert run(HEALTHY.but(told={"nvmlInit": 18}), code) == [-18, -1]


def test_a_busy_link_is_another_one(run: Any, tmp_path: Path) -> None:
    code = (
        ASK
        + """
import os, time
pynvml.nvmlInit()
links = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]
def generations():
    return [ask("nvmlDeviceGetCurrPcieLinkGeneration", link) for link in links]
def mark(age_s):
    path = os.environ["STANDIN_GPUS"].replace("scenario", "busy") + ".1"
    open(path, "w").close()
    os.utime(path, (time.time() - age_s,) * 2)
seen = [generations()]
for age_s in (-5, 5):
    mark(age_s)
    seen.append(generations())
print(json.dumps(seen))
"""
    )
    assert run(EIGHT, code) == [[1, 1], [1, 5], [1, 1]]


def test_slices_of_a_gpu(run: Any) -> None:
    code = (
        ASK
        + """
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
slices = [ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, place) for place in range(3)]
found = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(slices[1]).encode())
parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)
print(json.dumps([
    [ask("nvmlDeviceGetUUID", device) for device in (*slices[:2], found, parent)],
    slices[2],
    ask("nvmlDeviceGetMigMode", gpu),
    ask("nvmlDeviceGetMaxMigDeviceCount", gpu),
]))
"""
    )
    slices = f"{mig_uuid(0, 0)} {mig_uuid(0, 1)}"
    answer = run(HEALTHY.gpu(0, mig=1, mig_uuids=slices), code)
    assert answer == [[mig_uuid(0, 0), mig_uuid(0, 1), mig_uuid(0, 1), uuid(0)], -6, [1, 1], 8]


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        (uuid(3), [3]),
        ("2,0", [2, 0]),
        (uuid(1)[:9 + 4], [1]),
        ("1,none,2", [1]),
        ("", []),
    ],
)  # fmt: skip
def test_cuda_lists_what_is_visible(run: Any, visible: str | None, seen: list[int]) -> None:
    code = (
        CUDA
        + """
codes = [ask("cuDeviceGetCount", ctypes.byref(number)), ask("cuInit", 0)]
ask("cuDeviceGetCount", ctypes.byref(number))
buses = []
for ordinal in range(number.value):
    ask("cuDeviceGetPCIBusId", text, 96, ordinal)
    buses.append(text.value.decode())
print(json.dumps([codes, buses]))
"""
    )
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    codes, buses = run(EIGHT, code, **environment)
    assert codes == [3, 0 if seen else 100]
    assert buses == [bus_id(index) for index in seen]


def test_a_cuda_device_tells_what_the_scenario_says(run: Any) -> None:
    code = (
        CUDA
        + """
ask("cuInit", 0)
ask("cuDeviceGetName", text, 96, 0)
own, name = (ctypes.c_ubyte * 16)(), ctypes.c_char_p()
ask("cuDeviceGetUuid_v2", own, 0)
attributes = []
for attribute in (75, 76, 18):
    ask("cuDeviceGetAttribute", ctypes.byref(number), attribute, 0)
    attributes.append(number.value)
ask("cuDriverGetVersion", ctypes.byref(number))
ask("cuGetErrorName", 803, ctypes.byref(name))
with open("/proc/self/maps") as maps:
    files = {line.split()[-1] for line in maps if "libcuda" in line}
print(json.dumps([
    text.value.decode(), bytes(own).hex(), attributes, number.value, name.value.decode(),
    [file.rpartition("/")[2] for file in files], ask("cuDeviceGet", ctypes.byref(number), 1),
]))
"""
    )
    name, own, *rest = run(EIGHT, code, CUDA_VISIBLE_DEVICES=uuid(6))
    assert (name, own) == (H100["name"], uuid(6).removeprefix("GPU-").replace("-", ""))
    mismatch = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    assert rest == [[9, 0, 0], 13000, mismatch, ["libcuda.so.580.95.05"], 101]


def test_cuda_starts_with_the_code_of_any_gpu_that_is_visible(run: Any) -> None:
    code = CUDA + 'print(json.dumps(ask("cuInit", 0)))'
    node = EIGHT.but(told={"gpu3.cuInit": 999})
    assert run(node, code, CUDA_VISIBLE_DEVICES=uuid(3)) == 999


def test_cuda_starts_without_a_gpu_that_it_does_not_see(run: Any) -> None:
    code = CUDA + 'print(json.dumps(ask("cuInit", 0)))'
    node = EIGHT.but(told={"gpu3.cuInit": 999})
    assert run(node, code, CUDA_VISIBLE_DEVICES=uuid(4)) == 0


@pytest.mark.timeout(30)
@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetName"])
def test_a_call_can_hang(run: Any, call: str) -> None:
    code = (
        ASK
        + """
pynvml.nvmlInit()
ask("nvmlDeviceGetName", pynvml.nvmlDeviceGetHandleByIndex(0))
"""
    )
    with pytest.raises(subprocess.TimeoutExpired):
        run(HEALTHY.but(told={f"gpu0.{call}": "hang", call: "hang"}), code, timeout=2)


def test_functions_can_be_missing_and_the_others_stay(run: Any) -> None:
    code = (
        ASK
        + CUDA
        + """
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
try:
    pynvml.nvmlDeviceGetC2cModeInfoV(gpu)
    refused = None
except pynvml.NVMLError as error:
    refused = error.value
print(json.dumps([
    refused, hasattr(cuda, "cuDeviceGetUuid_v2"), hasattr(cuda, "cuDeviceGetUuid"),
    hasattr(cuda, "told"), pynvml.nvmlDeviceGetComputeMode(gpu),
]))
"""
    )
    node = HEALTHY.but(missing=("nvmlDeviceGetC2cModeInfoV", "cuDeviceGetUuid_v2"))
    assert run(node, code) == [13, False, True, False, 0]
