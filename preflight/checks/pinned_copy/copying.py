"""Runs the copies of one GPU, step by step, each step reported: what it saw is never judged here.

CUDA is reached through `preflight.measure.device` alone, whose `open_device` stands for the GPU.
"""

from __future__ import annotations

from preflight.checks.contract import Unit
from preflight.checks.pinned_copy.link import measure_again
from preflight.checks.pinned_copy.reading import PinnedCopyReading
from preflight.gpu_facts import CudaDevice, PcieLink
from preflight.machine.nvml import open_link
from preflight.measure import device as cuda
from preflight.measure.copies import Amount, Copies


class Copying:
    """One GPU's reading while it grows."""

    def __init__(self, unit: Unit, device: CudaDevice, reading: PinnedCopyReading) -> None:
        self._unit, self._gpu, self.reading = unit, device.gpu, reading
        self._step = ""

    def run(self) -> PinnedCopyReading:
        """Copy both ways, and once more where one look is not enough."""
        try:
            self._copy()
        except cuda.DeviceError as error:
            self._see(error=str(error), error_code=error.code, error_step=self._step)
        return self.reading

    def _copy(self) -> None:
        limits = self._unit.limits
        self._do("starting CUDA (cuInit)")
        device = cuda.open_device()
        amount = Amount(limits.piece_mib << 20, limits.measure_s, limits.wake_s)
        self._do("asking NVML for the link")
        copies = Copies(device, amount, open_link(self._gpu.uuid or ""))
        self._pinned(copies)
        if limits.warn_pinned_over_pageable is not None:
            self._do("copying pageable memory to the device")
            self._see(pageable_h2d_gb_per_s=copies.measure("pageable_h2d"))
        self._do("comparing what came back from the device")
        self._see(verified=copies.verify())
        if measure_again(self.reading, limits):
            self._do("copying once more")
            copies.rest()
            self._pinned(copies)

    def _pinned(self, copies: Copies) -> None:
        self._do("copying pinned memory to the device")
        to_device = copies.measure("pinned_h2d")
        self._see(h2d_gb_per_s=to_device, **self._link(copies))
        self._do("copying from the device to pinned memory")
        to_host = copies.measure("pinned_d2h")
        looks = self.reading.looks + 1
        self._see(d2h_gb_per_s=to_host, looks=looks, **self._link(copies))

    def _link(self, copies: Copies) -> dict[str, PcieLink | str | None]:
        link = copies.link()
        if link is not None:
            # What slot and card can do was found out before, with the slot's own word.
            most = {"max_width": self._gpu.link.max_width, "slot_width": self._gpu.link.slot_width}
            return {"link": link.model_copy(update=most), "link_seen": "during the copy"}
        idle = self._gpu.link
        if idle.gen is None or idle.width is None:
            return {}
        return {"link": idle, "link_seen": "idle"}

    def _do(self, step: str) -> None:
        self._step = step
        self._unit.progress(step)

    def _see(self, **fields: object) -> None:
        self.reading = self.reading.model_copy(update=fields)
        self._unit.emit(self.reading)
