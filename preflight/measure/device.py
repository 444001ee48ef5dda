"""The device that a measuring process works on: what it must be able to do, and the real one.

CUDA_VISIBLE_DEVICES holds one device in a unit's process, so it is always device 0. The code that
touches torch.cuda is in `preflight.measure.torch_device` alone.
"""

from __future__ import annotations

import importlib
from typing import Literal, Protocol

Copy = Literal["pinned_h2d", "pinned_d2h", "pageable_h2d"]

_REAL = "preflight.measure.torch_device"


class DeviceError(Exception):
    """CUDA refused; `code` is the CUDA error number where it is known."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class Device(Protocol):
    """One CUDA device.

    Every method may raise DeviceError.
    """

    def arch_list(self) -> tuple[str, ...]:
        """What torch was compiled for: "sm_90", "compute_90"; empty where torch does not say."""

    def kernel(self, numbers: int) -> float:
        """Sum 0 .. numbers - 1 on the device with a real kernel, in float64."""

    def copy_seconds(self, copy: Copy, piece_bytes: int, pieces: int) -> list[float]:
        """Seconds of each of `pieces` copies, by CUDA events on a side stream.

        Host and device buffers are made for the largest size so far, and kept.
        """

    def verify(self, piece_bytes: int) -> bool:
        """Copy a pattern to the device and back, both pinned, and compare every byte."""


def load() -> None:
    """Import torch, so that its seconds are not counted as the device's. Touches no device."""
    importlib.import_module(_REAL)


def open_device() -> Device:
    """The one visible CUDA device, its context made. Imports torch.

    Raises:
        DeviceError: CUDA cannot start on it.
    """
    from preflight.measure.torch_device import TorchDevice

    return TorchDevice()
