"""What stands in for GPUs in a command under test, beside the libraries of tests/gpu_standins.

All read one scenario, the file $STANDIN_GPUS: "key = value" lines, of which "gpu3.KEY" beats
"gpu.KEY". Copies are given the seconds that their rate says without taking them; that a copy keeps
the link busy the stand-in for NVML sees by a file's age.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# So that a thread that asks for the link every 20 ms does so while it is busy.
FIRST_COPY_S = 0.07


class Scenario:
    """The lines of the file."""

    def __init__(self) -> None:
        lines = (line.partition(" = ") for line in _path().read_text().splitlines())
        self.lines = {key.strip(): value for key, _, value in lines}

    def of(self, gpu: int, key: str) -> str:
        return self.lines.get(f"gpu{gpu}.{key}") or self.lines.get(f"gpu.{key}") or ""

    def device(self, visible: str | None) -> int:
        """The GPU that is CUDA's device 0."""
        for gpu in range(int(self.lines["gpus"])):
            ids = (self.of(gpu, "uuid"), *self.of(gpu, "mig_uuids").split())
            if visible in (None, *ids):
                return gpu
        raise AssertionError(f"CUDA_VISIBLE_DEVICES={visible} is not one whole UUID")


def _path() -> Path:
    return Path(os.environ["STANDIN_GPUS"])


class Device:
    """preflight.measure.device.Device."""

    def __init__(self) -> None:
        self._scenario = Scenario()
        self._gpu = self._scenario.device(os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._copied: set[str] = set()
        self._may_fail("open")

    def arch_list(self) -> tuple[str, ...]:
        return tuple(self._told("arch_list").split())

    def kernel(self, numbers: int) -> float:
        self._may_fail("kernel")
        return numbers * (numbers - 1) // 2 + float(self._told("kernel_wrong_by") or 0)

    def copy_seconds(self, copy: str, piece_bytes: int, pieces: int) -> list[float]:
        self._may_fail(copy)
        Path(f"{self._scenario.lines['busy_marker']}.{self._gpu}").touch()
        if copy not in self._copied:
            self._copied.add(copy)
            time.sleep(FIRST_COPY_S)
        return [piece_bytes / 1e9 / float(self._told(f"{copy}_gb_per_s"))] * pieces

    def verify(self, piece_bytes: int) -> bool:
        self._may_fail("verify")
        return self._told("verify") != "differs"

    def _told(self, key: str) -> str:
        return self._scenario.of(self._gpu, key)

    def _may_fail(self, act: str) -> None:
        from preflight.measure.device import DeviceError

        answer = self._told(act)
        while answer == "hang":
            time.sleep(1)
        if answer.isdecimal():
            raise DeviceError("CUDA error: the stand-in has no words", int(answer))


def stand_in(after_import: Callable[[str, Callable[[Any], None]], None]) -> None:
    """Have the command's modules use all this."""
    after_import("preflight.measure.device", _device)
    after_import("preflight.machine.builds", _builds)
    after_import("preflight.machine.root", _root)


def _device(module: Any) -> None:
    module.load, module.open_device = lambda: None, Device


def _builds(module: Any) -> None:
    def torch_build() -> Any:
        lines = Scenario().lines
        if "torch" not in lines:
            return None
        return module.Torch(version=lines["torch"], cuda=lines.get("torch_cuda"))

    module.torch_build = torch_build


def _root(module: Any) -> None:
    @dataclass(frozen=True)
    class Overlaid(module.Root):  # type: ignore[misc]
        """The real machine, but for files and whole folders that lie beside the scenario."""

        overlay: Path = field(default_factory=lambda: _path().with_name("machine"))

        def _where(self, name: str) -> str:
            ours = self.overlay / name.lstrip("/")
            return str(ours) if ours.exists() else str(super()._where(name))

    module.host = Overlaid
