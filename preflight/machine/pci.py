"""GPUs as plain files show them: the PCI bus in sysfs, the driver's version, device nodes.

Formats: Documentation/ABI/testing/sysfs-bus-pci of the kernel. No library is asked.
"""

from __future__ import annotations

import re

from preflight.gpu_facts import GpuHost, PcieLink
from preflight.machine.kernel_text import integer
from preflight.machine.root import Root

_DEVICES = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_DISPLAY = ("0x0300", "0x0302")  # VGA and 3D controllers; the rest is audio, USB, NVSwitch
_GT_PER_S = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "32.0": 5, "64.0": 6}
WIDTHS = {1, 2, 4, 8, 12, 16, 32}  # the kernel writes 0, 63 or 255 where it does not know
_DEVICE_NODE = re.compile(r"nvidia(?!-caps).*|dxg|nvhost-.*")
_KERNEL_MODULE = re.compile(r"^NVRM version:.* Kernel Module.*?\s(\d+(?:\.\d+)+)\s", re.MULTILINE)


def read_gpu_host(root: Root) -> GpuHost:
    """What files tell of GPUs; empty on a machine without any."""
    names = root.list_dir("/dev")
    return GpuHost(
        kernel_module=kernel_module(root.read_text("/proc/driver/nvidia/version")),
        device_nodes=tuple(f"/dev/{name}" for name in names if _DEVICE_NODE.fullmatch(name)),
        pci_gpus=gpus(root),
    )


def gpus(root: Root) -> tuple[str, ...]:
    """NVIDIA's display functions, those of other containers included, in the order of the bus."""
    return tuple(
        name
        for name in root.list_dir(_DEVICES)
        if _word(root, name, "vendor") == _NVIDIA
        and (_word(root, name, "class") or "").startswith(_DISPLAY)
    )


def numa_node(root: Root, bus_id: str) -> int | None:
    """The node of the host that the function is attached to; None where firmware does not say."""
    node = integer(_word(root, bus_id, "numa_node"))
    return None if node is None or node < 0 else node


def link(root: Root, bus_id: str) -> PcieLink:
    """The function's PCIe link. What the slot allows is known where its port is to be seen."""
    gpu_max_gen, gpu_max_width = _end(root, bus_id, "max")
    # A device's folder is a link into the tree of buses, so that ".." is the port it hangs on.
    slot_gen, slot_width = _end(root, f"{bus_id}/..", "max")
    gen, width = _end(root, bus_id, "current")
    return PcieLink(
        gen=gen,
        width=width,
        max_gen=_both(gpu_max_gen, slot_gen),
        max_width=_both(gpu_max_width, slot_width),
        gpu_max_gen=gpu_max_gen,
    )


def slot_width(root: Root, bus_id: str) -> int | None:
    """Lanes of the port that the function hangs on; None where it is hidden, as in a guest."""
    return _end(root, f"{bus_id}/..", "max")[1]


def kernel_module(text: str | None) -> str | None:
    """The version in /proc/driver/nvidia/version, of the proprietary or the open module."""
    match = _KERNEL_MODULE.search(f"{text}\n") if text else None
    return match[1] if match else None


def generation(speed: str | None) -> int | None:
    """PCIe generation of a link speed such as "16.0 GT/s PCIe"; None for "Unknown"."""
    number, _, unit = (speed or "").partition(" ")
    return _GT_PER_S.get(number) if unit.startswith("GT/s") else None


def _end(root: Root, device: str, which: str) -> tuple[int | None, int | None]:
    speed = root.read_text(f"{_DEVICES}/{device}/{which}_link_speed")
    width = integer(_word(root, device, f"{which}_link_width"))
    return generation(speed), width if width in WIDTHS else None


def _both(gpu: int | None, slot: int | None) -> int | None:
    return None if gpu is None or slot is None else min(gpu, slot)


def _word(root: Root, device: str, name: str) -> str | None:
    text = root.read_text(f"{_DEVICES}/{device}/{name}")
    return None if text is None else text.strip()
