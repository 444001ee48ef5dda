from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from preflight.gpu_facts import Gpu, Nvml, PcieLink
from preflight.machine import nvml
from preflight.machine.nvml_gpu import GpuReading, bus_id
from tests.fake_nvml import (
    GIB,
    FakeGpu,
    fabric,
    fake_nvml,
    field_values,
    memory,
    nodes,
    pci_info,
    process,
    refused,
)

HEALTHY = Gpu(
    index=0, uuid="GPU-00000000", name="NVIDIA H100 80GB HBM3", pci_bus_id="0000:1b:00.0",
    compute_capability="9.0",
    link=PcieLink(gen=1, width=16, max_gen=5, max_width=16, gpu_max_gen=5),
    numa_node=1, compute_mode="default", mig=False, mig_slices=(), c2c=False, integrated=False,
    virtualization="none", fabric="completed", memory_total_gib=80.0, memory_used_gib=2.0,
    processes=(77, 4321),
)  # fmt: skip
NO_LINK = PcieLink(gen=None, width=None, max_gen=None, max_width=None, gpu_max_gen=None)
CODES = [getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")]

# Every question about a GPU, and the fields that are unknown without its answer.
FIELDS = {
    "nvmlDeviceGetUUID": ["uuid"],
    "nvmlDeviceGetName": ["name"],
    "nvmlDeviceGetPciInfo": ["pci_bus_id"],
    "nvmlDeviceGetCudaComputeCapability": ["compute_capability"],
    "nvmlDeviceGetCurrPcieLinkGeneration": ["link.gen"],
    "nvmlDeviceGetCurrPcieLinkWidth": ["link.width"],
    "nvmlDeviceGetMaxPcieLinkGeneration": ["link.max_gen"],
    "nvmlDeviceGetMaxPcieLinkWidth": ["link.max_width"],
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": ["link.gpu_max_gen"],
    "nvmlDeviceGetMemoryAffinity": ["numa_node"],
    "nvmlDeviceGetComputeMode": ["compute_mode"],
    "nvmlDeviceGetMigMode": ["mig"],
    "nvmlDeviceGetC2cModeInfoV": ["c2c"],
    "nvmlDeviceGetVirtualizationMode": ["virtualization"],
    "nvmlDeviceGetGpuFabricInfoV": ["fabric"],
    "nvmlDeviceGetMemoryInfo": ["memory_total_gib", "memory_used_gib", "integrated"],
    "nvmlDeviceGetComputeRunningProcesses": ["processes"],
}


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(*gpus: FakeGpu, **changes: Any) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(*gpus, **changes))

    return install


def read(use: Any, changes: dict[str, Any] | None = None, **system: Any) -> Gpu:
    use(FakeGpu(changes=changes or {}), **system)
    reading = GpuReading(0)
    reading.read()
    assert not reading.forbidden
    return reading.gpu()


def start() -> tuple[Nvml, list[str]]:
    steps: list[str] = []
    return nvml.start(steps.append), steps


def value(gpu: Gpu, field: str) -> Any:
    for part in field.split("."):
        gpu = getattr(gpu, part)
    return gpu


def test_a_healthy_gpu(use: Any) -> None:
    assert read(use) == HEALTHY


@pytest.mark.parametrize("question", FIELDS)
def test_what_is_not_supported_is_none_with_the_reason(use: Any, question: str) -> None:
    gpu = read(use, {question: refused(3)})
    assert gpu.error is None and gpu.error_code is None
    assert dict(gpu.unanswered) == dict.fromkeys(FIELDS[question], "not supported")
    assert all(value(gpu, field) is None for field in FIELDS[question])


@pytest.mark.parametrize("code", sorted({*CODES, 4711} - {15, 16}))
@pytest.mark.parametrize("question", sorted(set(FIELDS) - {"nvmlDeviceGetUUID"}))
def test_no_other_code_for_one_question_costs_another_field(
    use: Any, question: str, code: int
) -> None:
    gpu = read(use, {question: refused(code)})
    assert gpu.error is None
    assert set(gpu.unanswered) <= set(FIELDS[question])
    unknown = set(FIELDS[question]) & set(gpu.unanswered)
    expected = HEALTHY.model_dump()
    for field in unknown:
        assert value(gpu, field) is None
        top, _, part = field.partition(".")
        expected[top] = expected[top] | {part: None} if part else None
    # What is left is the same, or was answered by another form of the question.
    assert gpu.model_dump(exclude={"unanswered"}) == {
        key: field for key, field in expected.items() if key != "unanswered"
    }


@pytest.mark.parametrize("code", [15, 16])
@pytest.mark.parametrize("question", FIELDS)
def test_lost_in_the_middle_keeps_what_was_answered_before(
    use: Any, question: str, code: int
) -> None:
    gpu = read(use, {question: refused(code)})
    assert gpu.error_code == code
    assert gpu.error == {15: "gpu is lost", 16: "reset required"}[code]
    lost = FIELDS[question][0]
    assert value(gpu, lost) is None and gpu.processes is None
    if question != "nvmlDeviceGetUUID":
        assert gpu.uuid == HEALTHY.uuid
    assert not gpu.unanswered


@pytest.mark.parametrize("question", FIELDS)
def test_looked_at_from_outside_while_it_is_asked(use: Any, question: str) -> None:
    seen: list[Gpu] = []

    def slow(*arguments: Any) -> Any:
        seen.append(reading.gpu("no answer"))
        return refused(3)

    use(FakeGpu(changes={question: slow}))
    reading = GpuReading(0)
    reading.read()
    assert reading.gpu().error is None
    (first, *_) = seen
    assert (first.error, first.error_code, first.processes) == ("no answer", None, None)


@pytest.mark.parametrize("code", [1, 2, 6, 8, 9, 10, 11, 14, 15, 16, 17, 18, 28, 999])
def test_refused_at_the_handle(use: Any, code: int) -> None:
    gpu = read(use, {"nvmlDeviceGetHandleByIndex": refused(code)})
    nothing = dict.fromkeys(HEALTHY.model_dump()) | {
        "index": 0, "link": NO_LINK.model_dump(), "mig_slices": (), "unanswered": {},
        "error_code": code, "error": nvml.error_name(code),
    }  # fmt: skip
    assert gpu.model_dump() == nothing


def test_a_gpu_that_we_may_not_access_is_not_ours(use: Any) -> None:
    use(FakeGpu(changes={"nvmlDeviceGetHandleByIndex": refused(4)}))
    reading = GpuReading(0)
    reading.read()
    assert reading.forbidden


@pytest.mark.parametrize("code", [1, 4, 9, 17, 999])
def test_without_its_uuid_a_gpu_cannot_be_used(use: Any, code: int) -> None:
    gpu = read(use, {"nvmlDeviceGetUUID": refused(code)})
    assert (gpu.error_code, gpu.uuid, gpu.name) == (code, None, None)


@pytest.mark.parametrize("question", FIELDS)
def test_a_function_that_the_binding_lacks(use: Any, question: str) -> None:
    gpu = read(use, lacks=(question,))
    newer_form_left = {"nvmlDeviceGetC2cModeInfoV", "nvmlDeviceGetComputeRunningProcesses"}
    if question in newer_form_left:
        assert gpu == HEALTHY
    else:
        expected = dict.fromkeys(FIELDS[question], "not in this nvidia-ml-py")
        assert dict(gpu.unanswered) == expected


@pytest.mark.parametrize("question", FIELDS)
def test_an_answer_of_another_shape(use: Any, question: str) -> None:
    gpu = read(use, {question: object()})
    assert gpu.error is None
    assert set(gpu.unanswered) <= set(FIELDS[question])


def test_an_old_binding_has_no_structure_for_the_fabric_and_no_second_memory_record(
    use: Any,
) -> None:
    lacks = ("c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfo_v3_t", "nvmlMemory_v2")
    gpu = read(use, lacks=lacks)
    assert (gpu.fabric, gpu.memory_total_gib, gpu.memory_used_gib) == (None, 80.0, None)
    assert dict(gpu.unanswered) == {
        "fabric": "not in this nvidia-ml-py",
        "memory_used_gib": "told with the driver's reserve only",
    }


def test_an_old_driver_takes_the_first_memory_record_only(use: Any) -> None:
    both = memory(total=16 * GIB, used=GIB, reserved=GIB)

    def old(version: int | None = None) -> Any:
        return refused(13) if version else both()

    gpu = read(use, {"nvmlDeviceGetMemoryInfo": old})
    assert (gpu.memory_total_gib, gpu.memory_used_gib) == (16.0, None)
    assert gpu.integrated is False


def test_a_newer_fabric_record_is_tried(use: Any) -> None:
    def third_only(reference: Any) -> Any:
        if reference._obj.version == pynvml.nvmlGpuFabricInfo_v2:
            return refused(25)
        return fabric(2)(reference)

    assert read(use, {"nvmlDeviceGetGpuFabricInfoV": third_only}).fabric == "in progress"


@pytest.mark.parametrize(
    ("state", "status", "text"),
    [
        (0, 0, "not supported"),
        (1, 999, "not started"),
        (2, 0, "in progress"),
        (3, 0, "completed"),
        (3, 999, "completed, but unknown"),
        (9, 0, None),
    ],
)
def test_fabric(use: Any, state: int, status: int, text: str | None) -> None:
    assert read(use, {"nvmlDeviceGetGpuFabricInfoV": fabric(state, status)}).fabric == text


def test_strings_may_be_bytes_and_odd(use: Any) -> None:
    def odd() -> str:
        return b"Tesla\xff V100".decode()  # as the binding does

    gpu = read(use, {"nvmlDeviceGetName": odd, "nvmlDeviceGetUUID": b"GPU-\xfe"})
    assert (gpu.name, gpu.uuid, gpu.error) == ("Tesla\ufffd V100", "GPU-\ufffd", None)
    gpu = read(use, {"nvmlDeviceGetName": "", "nvmlDeviceGetPciInfo": pci_info(b"0\xff:1B:00.0")})
    assert gpu.name is None and gpu.pci_bus_id is None
    assert gpu.unanswered["name"] == "an empty string"
    assert gpu.unanswered["pci_bus_id"].startswith("UnicodeDecodeError")


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        (b"0000000F:01:00.0", "000f:01:00.0"),
        ("0001:C3:1F.7", "0001:c3:1f.7"),
        ("00010000:1B:00.0", "10000:1b:00.0"),
    ],
)
def test_bus_ids_are_written_as_sysfs_does(told: str | bytes, found: str) -> None:
    assert bus_id(told) == found


@pytest.mark.parametrize("told", ["", "1B:00.0", "0000:1B:00.9", "0000:1B:00.0\n", "N/A"])
def test_what_is_no_bus_id(told: str) -> None:
    with pytest.raises(nvml.Refused):
        bus_id(told)


@pytest.mark.parametrize("unknown", [0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, -1, 0])
def test_numbers_that_stand_for_unknown(use: Any, unknown: int) -> None:
    links = {name: unknown for name in FIELDS if "PcieLink" in name}
    gpu = read(use, {**links, "nvmlDeviceGetMemoryInfo": memory(unknown, 0, 0)})
    assert (gpu.link, gpu.memory_total_gib, gpu.memory_used_gib) == (NO_LINK, None, 0.0)
    asked = set(NO_LINK.model_dump()) - {"slot_width"}  # that is in sysfs
    expected = {f"link.{part}" for part in asked} | {"memory_total_gib"}
    assert set(gpu.unanswered) == expected | {"integrated"}


def test_modes_that_nvml_does_not_know_yet(use: Any) -> None:
    gpu = read(use, {"nvmlDeviceGetComputeMode": 7, "nvmlDeviceGetVirtualizationMode": 9})
    assert (gpu.compute_mode, gpu.virtualization) == (None, None)
    assert gpu.unanswered["compute_mode"] == "unknown value 7"


@pytest.mark.parametrize(
    ("mode", "name"),
    [(0, "default"), (1, "exclusive_thread"), (2, "prohibited"), (3, "exclusive_process")],
)
def test_compute_modes(use: Any, mode: int, name: str) -> None:
    assert read(use, {"nvmlDeviceGetComputeMode": mode}).compute_mode == name


def slice_of(number: int, answer: Any) -> Any:
    """A MIG device: NVML answers little about it."""
    return FakeGpu(number, {"nvmlDeviceGetUUID": answer})


def test_mig_with_slices_some_of_them_not_ours(use: Any) -> None:
    places = {
        0: slice_of(0, "MIG-aa"),
        1: slice_of(1, refused(4)),
        2: refused(4),
        4: slice_of(4, b"MIG-bb"),
    }
    changes = {
        "nvmlDeviceGetMigMode": [1, 1],
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda place: places.get(place, refused(6)),
        "nvmlDeviceGetMemoryAffinity": nodes(0),
    }
    gpu = read(use, changes)
    assert (gpu.mig, gpu.mig_slices, gpu.numa_node) == (True, ("MIG-aa", "MIG-bb"), 0)
    assert not gpu.unanswered


def test_mig_of_which_the_slices_are_not_told(use: Any) -> None:
    gpu = read(use, {"nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetMaxMigDeviceCount": refused(3)})
    assert (gpu.mig, gpu.mig_slices) == (True, ())
    assert dict(gpu.unanswered) == {"mig_slices": "not supported"}


def test_lost_while_its_slices_are_listed(use: Any) -> None:
    changes = {
        "nvmlDeviceGetMigMode": [1, 1],
        "nvmlDeviceGetMigDeviceHandleByIndex": refused(15),
    }
    assert read(use, changes).error_code == 15


def test_slices_are_not_asked_for_where_mig_is_off(use: Any) -> None:
    assert read(use, {"nvmlDeviceGetMaxMigDeviceCount": refused(15)}).error is None


def test_a_coherent_link(use: Any) -> None:
    enabled = SimpleNamespace(isC2cEnabled=1)
    assert read(use, {"nvmlDeviceGetC2cModeInfoV": enabled}).c2c is True
    older = {"nvmlDeviceGetC2cModeInfoV": refused(13)}
    assert read(use, {**older, "nvmlDeviceGetFieldValues": field_values(5)}).c2c is True
    assert read(use, {**older, "nvmlDeviceGetFieldValues": field_values(0)}).c2c is False
    gpu = read(use, {**older, "nvmlDeviceGetFieldValues": field_values(5, code=3)})
    assert (gpu.c2c, gpu.unanswered["c2c"]) == (None, "not supported")


@pytest.mark.parametrize(
    ("mode", "seen"), [(0, "none"), (1, "passthrough"), (2, "vgpu"), (3, "none"), (4, "none")]
)
def test_virtual_gpus(use: Any, mode: int, seen: str) -> None:
    assert read(use, {"nvmlDeviceGetVirtualizationMode": mode}).virtualization == seen


def test_integrated_gpus_are_known_by_their_capability(use: Any) -> None:
    gb10 = {
        "nvmlDeviceGetCudaComputeCapability": (12, 1),
        "nvmlDeviceGetMemoryInfo": refused(3),
    }
    assert read(use, gb10).integrated is True
    assert read(use, {"nvmlDeviceGetCudaComputeCapability": (12, 0)}).integrated is False


@pytest.mark.parametrize(("numbers", "node"), [((0,), 0), ((67,), 67), ((), None), ((0, 1), None)])
def test_numa_nodes(use: Any, numbers: tuple[int, ...], node: int | None) -> None:
    assert read(use, {"nvmlDeviceGetMemoryAffinity": nodes(*numbers)}).numa_node == node


def test_a_binding_that_misreads_the_process_list(use: Any) -> None:
    """nvidia-ml-py 12.535.77 has a longer record than drivers of its branch."""
    changes = {"nvmlDeviceGetComputeRunningProcesses": [process(77), process(1 << 31)]}
    assert read(use, changes).processes == (77, 4321)
    changes["nvmlDeviceGetComputeRunningProcesses_v2"] = changes[
        "nvmlDeviceGetComputeRunningProcesses"
    ]
    gpu = read(use, changes)
    assert gpu.processes is None and "not pids" in gpu.unanswered["processes"]


def test_no_processes(use: Any) -> None:
    assert read(use, {"nvmlDeviceGetComputeRunningProcesses": []}).processes == ()


def test_start(use: Any) -> None:
    use()
    answer, steps = start()
    assert answer == Nvml(
        state="ok", code=None, error=None, step=None, driver_version="580.95.05",
        cuda_version="13.0",
    )  # fmt: skip
    assert steps[:2] == ["import pynvml", "nvmlInit_v2"]


def test_minor_versions_of_cuda(use: Any) -> None:
    use(nvmlSystemGetCudaDriverVersion_v2=12040)
    assert start()[0].cuda_version == "12.4"


def test_versions_may_be_missing(use: Any) -> None:
    use(nvmlSystemGetDriverVersion=refused(999), nvmlSystemGetCudaDriverVersion_v2=refused(13))
    answer, _ = start()
    assert (answer.state, answer.driver_version, answer.cuda_version) == ("ok", None, None)


@pytest.mark.parametrize(
    ("code", "state", "name"),
    [
        (9, "error", "driver not loaded"),
        (12, "no_library", "library not found"),
        (18, "error", "lib rm version mismatch"),
        (999, "error", "unknown"),
        (4711, "error", "code 4711"),
    ],
)
def test_nvml_does_not_start(use: Any, code: int, state: str, name: str) -> None:
    use(nvmlInit=refused(code))
    answer, _ = start()
    assert (answer.state, answer.code, answer.error) == (state, code, name)
    assert answer.step == "nvmlInit_v2"


def test_the_installed_binding_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "CDLL", no_library)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    answer, _ = start()
    assert (answer.state, answer.code) == ("no_library", 12)


def test_the_binding_is_not_there_or_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    answer, _ = start()
    assert (answer.state, answer.step) == ("failed", "import pynvml")
    assert "nvidia-ml-py cannot be imported" in (answer.error or "")
    monkeypatch.delitem(sys.modules, "pynvml")
    (tmp_path / "pynvml.py").write_text("def broken(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert start()[0].state == "failed"


def test_the_count(use: Any) -> None:
    use(FakeGpu(0), FakeGpu(1))
    well, _ = start()
    assert nvml.count(well, print) == (well, 2)
    use(nvmlDeviceGetCount=refused(999))
    failed, counted = nvml.count(well, lambda name: None)
    assert (failed.state, failed.code, failed.step) == ("error", 999, "nvmlDeviceGetCount_v2")
    assert (failed.driver_version, counted) == ("580.95.05", 0)


def test_a_link_is_sampled_and_may_fall_silent(use: Any) -> None:
    gens = iter([1, 5, refused(15)])
    changes = {
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda: next(gens),
        "nvmlDeviceGetGpuMaxPcieLinkGeneration": refused(13),
    }
    use(FakeGpu(3, changes))
    sample = nvml.open_link("GPU-00000003")
    expected = PcieLink(gen=1, width=16, max_gen=5, max_width=16, gpu_max_gen=None)
    assert sample() == expected
    assert sample() == expected.model_copy(update={"gen": 5})
    changes["nvmlDeviceGetCurrPcieLinkWidth"] = refused(15)
    assert sample() is None


@pytest.mark.parametrize("changes", [{}, {"nvmlInit": refused(9)}])
def test_a_link_that_cannot_be_opened(use: Any, changes: dict[str, Any]) -> None:
    use(FakeGpu(), **changes)
    assert nvml.open_link("GPU-ffffffff")() is None
