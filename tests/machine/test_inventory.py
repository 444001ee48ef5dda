from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.ended import Ended
from preflight.gpu_facts import Gpu, GpuHost, Nvml
from preflight.machine import inventory as module
from preflight.machine.inventory import answered, inventory, node
from preflight.machine.root import Root
from tests import making
from tests.fake_nvml import FakeGpu, fake_nvml, pci_info, refused
from tests.fakes import FixtureRoot, write_machine

NODE = FixtureRoot.named("gpu_node")
LIMIT_S = 20.0
BUSES = ["1B", "43", "52", "61", "9D", "C3", "D1", "DF"]


class Taken:
    """One inventory: the answer, and what was said on the way."""

    def __init__(self, root: Root = NODE) -> None:
        self.partial: list[dict[str, Any]] = []
        self.steps: list[str] = []
        answer = inventory(
            root, emit=self.partial.append, progress=self.steps.append, limit_s=LIMIT_S
        )
        json.dumps([answer, *self.partial], allow_nan=False)
        self.nvml, self.gpus, self.node = answered(Ended("done", 0.1, answer=answer), 20.0)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(*gpus: FakeGpu, **changes: Any) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(*gpus, **changes))

    return install


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A call that does not return while the test lasts."""
    monkeypatch.setattr(module, "_TO_REPORT_S", LIMIT_S - 0.3)
    over = threading.Event()
    yield lambda *arguments: over.wait(30)
    over.set()


def eight(**by_index: Any) -> list[FakeGpu]:
    """The eight of gpu_node; `gpu3=...` are changes to one of them."""
    return [
        FakeGpu(
            index,
            {"nvmlDeviceGetPciInfo": pci_info(f"00000000:{bus}:00.0".encode())}
            | by_index.get(f"gpu{index}", {}),
        )
        for index, bus in enumerate(BUSES)
    ]


def test_a_healthy_node(use: Any) -> None:
    use(*eight())
    taken = Taken()
    assert taken.nvml.state == "ok"
    assert [gpu.subject for gpu in taken.gpus] == [f"GPU {index}" for index in range(8)]
    assert tuple(gpu.pci_bus_id for gpu in taken.gpus) == module.pci.gpus(NODE)
    assert not any(gpu.error or gpu.unanswered for gpu in taken.gpus)
    assert taken.node == "exclusive"
    assert taken.steps[:2] == ["import pynvml", "nvmlInit_v2"]
    assert "nvmlDeviceGetCount_v2" in taken.steps


@pytest.mark.timeout(20)
def test_one_that_hangs_among_eight(use: Any, hang: Any) -> None:
    use(*eight(gpu5={"nvmlDeviceGetName": hang}))
    taken = Taken()
    assert taken.nvml.state == "ok"
    *others, sixth = [*taken.gpus[:5], *taken.gpus[6:], taken.gpus[5]]
    assert not any(gpu.error for gpu in others)
    assert (sixth.error, sixth.error_code) == ("no answer in 0 s: nvmlDeviceGetName", None)
    # What it had answered before tells the operator which one it is.
    assert (sixth.pci_bus_id, sixth.name) == ("0000:c3:00.0", None)
    assert taken.node == "exclusive"
    # The end of the process must not wait for the call.
    (stuck,) = [thread for thread in threading.enumerate() if "_read" in thread.name]
    assert stuck.daemon
    last = taken.partial[-1]["gpus"]
    assert [gpu["error"] is None for gpu in last] == [index != 5 for index in range(8)]


@pytest.mark.timeout(20)
def test_all_hang_at_the_handle(use: Any, hang: Any) -> None:
    use(*eight(), nvmlDeviceGetHandleByIndex=hang)
    taken = Taken()
    step = "nvmlDeviceGetHandleByIndex_v2"
    assert [gpu.error for gpu in taken.gpus] == [f"no answer in 0 s: {step}"] * 8


def test_what_is_known_is_handed_out_before_the_next_call(use: Any) -> None:
    seen: list[Any] = []

    def count() -> int:
        seen.append(list(taken_partial))
        return 1

    taken_partial: list[Any] = []
    use(FakeGpu(), nvmlDeviceGetCount=count)
    inventory(NODE, emit=taken_partial.append, progress=lambda text: None, limit_s=LIMIT_S)
    (before,) = seen
    assert before[-1]["nvml"]["driver_version"] == "580.95.05" and before[-1]["gpus"] == []
    assert taken_partial[1]["gpus"][0]["error"] == "no answer: nvmlDeviceGetHandleByIndex_v2"


@pytest.mark.parametrize(
    ("code", "state"), [(9, "error"), (12, "no_library"), (18, "error"), (999, "error")]
)
def test_nvml_does_not_start(use: Any, code: int, state: str) -> None:
    use(*eight(), nvmlInit=refused(code))
    taken = Taken()
    assert (taken.nvml.state, taken.nvml.code, taken.nvml.step) == (state, code, "nvmlInit_v2")
    assert (taken.gpus, taken.node) == ((), None)


def test_nvml_does_not_count(use: Any) -> None:
    use(nvmlDeviceGetCount=refused(999))
    taken = Taken()
    assert (taken.nvml.state, taken.nvml.step) == ("error", "nvmlDeviceGetCount_v2")
    assert taken.nvml.driver_version == "580.95.05"


def test_a_lost_gpu_is_listed_and_one_that_is_not_ours_is_not(use: Any) -> None:
    use(
        *eight(
            gpu2={"nvmlDeviceGetHandleByIndex": refused(15)},
            gpu6={"nvmlDeviceGetHandleByIndex": refused(4)},
        )
    )
    taken = Taken()
    assert [gpu.index for gpu in taken.gpus] == [0, 1, 2, 3, 4, 5, 7]
    assert [gpu.index for gpu in taken.gpus if gpu.error] == [2]
    assert taken.node == "shared"


def test_sysfs_fills_in_what_nvml_does_not_tell(use: Any) -> None:
    links = ("Curr", "Max", "GpuMax")
    silent = {f"nvmlDeviceGet{which}PcieLinkGeneration": refused(3) for which in links}
    silent |= {"nvmlDeviceGetMemoryAffinity": refused(3)}
    use(*eight(gpu1=silent, gpu7=silent | {"nvmlDeviceGetPciInfo": refused(3)}))
    taken = Taken()
    second, eighth = taken.gpus[1], taken.gpus[7]
    assert (second.link.gen, second.link.max_gen, second.link.gpu_max_gen) == (1, 5, 5)
    assert (second.numa_node, dict(second.unanswered)) == (0, {})
    assert (eighth.link.gen, eighth.numa_node) == (None, None)
    assert set(eighth.unanswered) == {
        "pci_bus_id", "numa_node", "link.gen", "link.max_gen", "link.gpu_max_gen",
    }  # fmt: skip


def test_nothing_is_filled_in_for_a_gpu_that_was_lost(use: Any) -> None:
    use(*eight(gpu1={"nvmlDeviceGetMemoryAffinity": refused(15)}))
    second = Taken().gpus[1]
    assert (second.error_code, second.pci_bus_id, second.numa_node) == (15, "0000:43:00.0", None)


def test_nvml_comes_before_sysfs(use: Any) -> None:
    use(*eight())
    # The fake GPUs are near node 1, and sysfs has the first four on node 0.
    assert Taken().gpus[0].numa_node == 1


def test_a_mistake_of_ours_is_no_hanging_gpu(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use(*eight())

    def mistake(self: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module.GpuReading, "read", mistake)
    with pytest.raises(ZeroDivisionError):
        Taken()


def test_no_gpus(use: Any, tmp_path: Path) -> None:
    use()
    taken = Taken(write_machine(tmp_path, {}))
    assert (taken.nvml.state, taken.gpus, taken.node) == ("ok", (), None)


def host(count: int, *device_nodes: str) -> GpuHost:
    pci = tuple(f"0000:{bus:02x}:00.0" for bus in range(count))
    return GpuHost(kernel_module="580.95.05", device_nodes=device_nodes, pci_gpus=pci)


@pytest.mark.parametrize(
    ("on_bus", "gpus", "forbidden", "expected"),
    [
        (8, 8, 0, "exclusive"),
        (8, 2, 0, "shared"),
        (8, 0, 0, "shared"),
        (8, 7, 1, "shared"),
        (0, 1, 1, "shared"),
        (0, 8, 0, None),
        (1, 2, 0, None),
        (0, 0, 0, None),
    ],
)
def test_whose_node_it_is(on_bus: int, gpus: int, forbidden: int, expected: str | None) -> None:
    ours = [making.gpu(index) for index in range(gpus)]
    assert node(host(on_bus), ours, forbidden) == expected


def test_nodes_of_which_the_bus_tells_nothing() -> None:
    assert node(host(1, "/dev/dxg"), [making.gpu()], 0) is None
    assert node(host(1), [making.gpu(integrated=True)], 0) is None
    # Other slices of the same GPU may be anybody's.
    assert node(host(1), [making.gpu(mig=True)], 0) is None
    assert node(host(2), [making.gpu(mig=True)], 0) == "shared"


WELL = Nvml(
    state="ok", code=None, error=None, step=None, driver_version="580.95.05", cuda_version="13.0"
)
INIT = "nvmlInit_v2"


def partial(nvml: Nvml = WELL, *gpus: Gpu, node: str | None = None) -> dict[str, Any]:
    listed = [gpu.model_dump(mode="json") for gpu in gpus]
    return {"nvml": nvml.model_dump(mode="json"), "gpus": listed, "node": node}


@pytest.mark.parametrize(
    ("ended", "state", "error", "step"),
    [
        (
            Ended("timeout", 20.0, last_progress=INIT),
            "no_answer", "no answer in 20 s", INIT,
        ),
        (
            Ended("timeout", 23.0, last_progress=INIT, abandoned_pid=4321),
            "no_answer",
            "no answer in 20 s, and process 4321 cannot be killed: it hangs in the kernel", INIT,
        ),
        (
            Ended("timeout", 20.0, last_progress="import pynvml"),
            "failed", "no answer in 20 s", "import pynvml",
        ),
        (
            Ended("timeout", 60.0, ready=False, went=False),
            "failed", "the process that asks NVML did not get ready", None,
        ),
        (
            Ended("died", 1.0, exit_signal=11, last_progress=INIT),
            "failed", "the process that asks NVML died of signal 11", INIT,
        ),
        (
            Ended("died", 1.0),
            "failed", "the process that asks NVML died", None,
        ),
        (
            Ended("raised", 1.0, text="OSError: [Errno 24] Too many open files\nmore"),
            "failed", "OSError: [Errno 24] Too many open files", None,
        ),
        (
            Ended("stopped", 1.0, last_progress=INIT),
            "failed", "stopped before NVML had answered", INIT,
        ),
    ],
)  # fmt: skip
def test_ends_without_any_answer(ended: Ended, state: str, error: str, step: str | None) -> None:
    nvml, gpus, whose = answered(ended, 20.0)
    assert (nvml.state, nvml.error, nvml.step, nvml.code) == (state, error, step, None)
    assert (gpus, whose) == ((), None)


def test_the_versions_stand_where_the_count_never_came() -> None:
    step = "nvmlDeviceGetCount_v2"
    nvml, gpus, _ = answered(Ended("timeout", 20.0, answer=partial(), last_progress=step), 20.0)
    assert (nvml.state, nvml.step, nvml.driver_version) == ("no_answer", step, "580.95.05")
    assert gpus == ()


def test_the_gpus_that_answered_stand_and_the_others_say_so_themselves() -> None:
    silent = making.gpu(1, uuid=None, error="no answer: nvmlDeviceGetUUID")
    answer = partial(WELL, making.gpu(0), silent, node="exclusive")
    ended = Ended("timeout", 20.0, answer=answer, last_progress="waiting for 2 GPUs")
    assert answered(ended, 20.0) == (WELL, (making.gpu(0), silent), "exclusive")


def test_a_crash_is_told_although_gpus_had_answered() -> None:
    ended = Ended("died", 2.0, answer=partial(WELL, making.gpu(0)), exit_signal=11)
    nvml, gpus, _ = answered(ended, 20.0)
    assert (nvml.state, nvml.driver_version, gpus) == ("failed", "580.95.05", (making.gpu(0),))


def test_a_code_stands_although_the_process_ended_badly_after_it() -> None:
    lost = WELL.model_copy(update={"state": "error", "code": 18, "error": "x", "step": INIT})
    assert answered(Ended("died", 2.0, answer=partial(lost)), 20.0) == (lost, (), None)


def test_the_slots_own_width_bounds_what_nvml_calls_the_most(use: Any, tmp_path: Path) -> None:
    """NVML's is the card's; the port is the folder that the device's link leads into."""
    port = "/sys/devices/pci0000:1a/port"
    root = write_machine(
        tmp_path,
        {f"{port}/max_link_width": "8\n", f"{port}/max_link_speed": "32.0 GT/s PCIe\n",
         f"{port}/0000:1b:00.0/vendor": "0x10de\n", f"{port}/0000:1b:00.0/class": "0x030200\n"},
    )  # fmt: skip
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / "0000:1b:00.0").symlink_to("../../../devices/pci0000:1a/port/0000:1b:00.0")
    use(FakeGpu(0))
    (gpu,) = Taken(root).gpus
    assert (gpu.link.max_width, gpu.link.slot_width) == (8, 8)


def test_a_count_that_no_machine_has_is_refused(use: Any) -> None:
    use(FakeGpu(0), nvmlDeviceGetCount=3000)
    taken = Taken()
    assert (taken.nvml.state, taken.gpus) == ("failed", ())
    assert "3000 is not a number of GPUs" in (taken.nvml.error or "")


def test_gpus_that_may_not_be_opened_are_counted(use: Any) -> None:
    use(FakeGpu(0), FakeGpu(1, {"nvmlDeviceGetHandleByIndex": refused(4)}))
    assert Taken().nvml.forbidden == 1
