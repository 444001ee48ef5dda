"""Which devices a job gets, as CUDA_VISIBLE_DEVICES has it."""

from __future__ import annotations

import pytest

from preflight.gpu_facts import Gpu, cuda_devices, is_gpu_node
from tests import making

EIGHT = tuple(making.gpu(number) for number in range(8))


def subjects(visible: str | None, *gpus: Gpu) -> list[str]:
    return [device.subject for device in cuda_devices(gpus or EIGHT, visible)]


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, list(range(8))),
        ("0,1", [0, 1]),
        ("5, 2", [5, 2]),  # the order is the job's
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,9,1", [0]),  # the list ends at what names nothing
        ("0,-1,1", [0]),
        ("1,1", []),  # a duplicate empties it
        ("GPU-00000003", [3]),
        ("GPU-00000003-0000-0000-0000-000000000000,0", [3, 0]),
        ("GPU-0000000", []),  # fits more than one
        ("MIG-1", []),
        ("\u0661", []),  # a digit of another script
    ],
)
def test_visible_devices(visible: str | None, numbers: list[int]) -> None:
    assert subjects(visible) == [f"GPU {number}" for number in numbers]


def test_a_gpu_that_does_not_answer_keeps_its_number() -> None:
    silent = making.gpu(3, uuid=None, error="no answer in 19 s: nvmlDeviceGetUUID")
    gpus = (*EIGHT[:3], silent, *EIGHT[4:])
    assert subjects("4,5,6,7", *gpus) == ["GPU 4", "GPU 5", "GPU 6", "GPU 7"]
    assert subjects("2,3,4", *gpus) == ["GPU 2", "GPU 4"]
    assert subjects(None, *gpus) == [f"GPU {n}" for n in (0, 1, 2, 4, 5, 6, 7)]


def test_mig_slices_are_devices_and_their_gpu_is_not() -> None:
    sliced = making.gpu(0, mig=True, mig_slices=("MIG-a", "MIG-b"))
    assert subjects(None, sliced, EIGHT[1]) == ["GPU 0 MIG 0", "GPU 0 MIG 1", "GPU 1"]
    assert subjects("MIG-b", sliced) == ["GPU 0 MIG 1"]
    assert subjects(None, making.gpu(0, mig=True)) == []


def test_device_nodes_of_gpus() -> None:
    names = ["/dev/nvidia0", "/dev/nvidia15", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia"]
    assert [is_gpu_node(name) for name in names] == [True, True, False, False, False]
