from __future__ import annotations

from pathlib import Path

import pytest

from preflight.gpu_facts import GpuHost, PcieLink
from preflight.machine import pci
from preflight.machine.root import Root
from tests.fakes import FixtureRoot, write_machine

NODE = FixtureRoot.named("gpu_node")
DEVICES = "/sys/bus/pci/devices"
GPUS = tuple(f"0000:{bus}:00.0" for bus in ["1b", "43", "52", "61", "9d", "c3", "d1", "df"])


def machine(folder: Path, **files: str) -> Root:
    """One function without a port above it, with these files."""
    named = {f"{DEVICES}/0000:01:00.0/{name}": text for name, text in files.items()}
    return write_machine(folder, named)


def test_gpus_on_the_bus_without_switches_and_the_boards_own_display() -> None:
    assert pci.gpus(NODE) == GPUS


@pytest.mark.parametrize(
    ("vendor", "kind", "counts"),
    [
        ("0x10de\n", "0x030000\n", True),
        ("0x10de\n", "0x030200\n", True),
        ("0x10de\n", "0x040300\n", False),
        ("0x10de\n", "0x068000\n", False),
        ("0x1002\n", "0x030000\n", False),
        ("0x10de\n", "", False),
        ("", "0x030200\n", False),
    ],
)
def test_which_functions_are_gpus(tmp_path: Path, vendor: str, kind: str, counts: bool) -> None:
    root = machine(tmp_path, vendor=vendor, **{"class": kind})
    assert pci.gpus(root) == (("0000:01:00.0",) if counts else ())


def test_the_node_of_a_function(tmp_path: Path) -> None:
    assert pci.numa_node(NODE, GPUS[3]) == 0
    assert pci.numa_node(NODE, GPUS[4]) == 1
    assert pci.numa_node(machine(tmp_path, numa_node="-1\n"), "0000:01:00.0") is None
    assert pci.numa_node(NODE, "0000:ff:00.0") is None


def test_the_link_of_an_idle_gpu() -> None:
    expected = PcieLink(gen=1, width=16, max_gen=5, max_width=16, gpu_max_gen=5)
    assert pci.link(NODE, GPUS[0]) == expected


def test_the_slot_limits_what_the_gpu_can_do(tmp_path: Path) -> None:
    port = "/sys/devices/pci0000:00/0000:00:01.0"
    ends = {
        f"{port}/max_link_speed": "8.0 GT/s PCIe\n",
        f"{port}/max_link_width": "8\n",
        f"{port}/0000:01:00.0/max_link_speed": "16.0 GT/s PCIe\n",
        f"{port}/0000:01:00.0/max_link_width": "16\n",
        f"{port}/0000:01:00.0/current_link_speed": "2.5 GT/s PCIe\n",
        f"{port}/0000:01:00.0/current_link_width": "4\n",
    }
    root = write_machine(tmp_path, ends)
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    link = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    link.symlink_to("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0")
    expected = PcieLink(gen=1, width=4, max_gen=3, max_width=8, gpu_max_gen=4)
    assert pci.link(root, "0000:01:00.0") == expected


def test_without_a_port_nobody_knows_what_the_slot_allows(tmp_path: Path) -> None:
    """As in a virtual machine."""
    root = machine(
        tmp_path,
        max_link_speed="16.0 GT/s PCIe\n", max_link_width="16\n",
        current_link_speed="Unknown\n", current_link_width="63\n",
    )  # fmt: skip
    expected = PcieLink(gen=None, width=None, max_gen=None, max_width=None, gpu_max_gen=4)
    assert pci.link(root, "0000:01:00.0") == expected


@pytest.mark.parametrize(
    ("speed", "gen"),
    [
        ("2.5 GT/s PCIe\n", 1),
        ("5 GT/s\n", 2),  # before Linux 5.6
        ("5.0 GT/s PCIe\n", 2),
        ("8.0 GT/s PCIe\n", 3),
        ("16.0 GT/s PCIe\n", 4),
        ("32.0 GT/s PCIe\n", 5),
        ("64.0 GT/s PCIe\n", 6),
        ("Unknown\n", None),
        ("Unknown speed\n", None),
        ("16.0\n", None),
        ("", None),
        (None, None),
    ],
)
def test_generation(speed: str | None, gen: int | None) -> None:
    assert pci.generation(speed) == gen


PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04) \n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  "
    "(dvs-builder@U22-I3-AM02-24-3)  Tue Sep 23 09:55:41 UTC 2025\n"
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (PROPRIETARY, "550.54.15"),
        (OPEN, "580.95.05"),
        (PROPRIETARY.replace("x86_64", "aarch64").replace("550.54.15", "525.85"), "525.85"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15", "550.54.15"),
        ("GCC version:  gcc version 12.3.0 (Kernel Module  1.2.3 )\n", None),
        ("NVRM version: something else\n", None),
        ("", None),
        (None, None),
    ],
)
def test_the_version_of_the_kernel_module(text: str | None, version: str | None) -> None:
    assert pci.kernel_module(text) == version


def test_the_gpu_host() -> None:
    nodes = ["nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"]
    nodes += [*(f"nvidia{index}" for index in range(8)), "nvidiactl"]
    assert pci.read_gpu_host(NODE) == GpuHost(
        kernel_module="580.95.05",
        device_nodes=tuple(f"/dev/{name}" for name in nodes),
        pci_gpus=GPUS,
    )


def test_other_kinds_of_device_nodes(tmp_path: Path) -> None:
    names = ["dxg", "nvhost-gpu", "nvidia-caps/nvidia-cap1", "nvidia-caps-imex-channels/channel0"]
    names += ["nvme0", "xnvidia0"]
    root = write_machine(tmp_path, {f"/dev/{name}": "" for name in names})
    assert pci.read_gpu_host(root).device_nodes == ("/dev/dxg", "/dev/nvhost-gpu")


def test_a_machine_without_gpus(tmp_path: Path) -> None:
    nothing = GpuHost(kernel_module=None, device_nodes=(), pci_gpus=())
    assert pci.read_gpu_host(Root(str(tmp_path))) == nothing
