"""Runs on a CUDA device what the product runs there, beside a plain loop, and prints JSON."""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from preflight.machine.nvml import open_link
from preflight.measure import device as cuda
from preflight.measure.copies import Amount, Copies
from preflight.measure.device import DeviceError

PIECE = 256 << 20
ROUNDS = 3
NUMBERS = 1 << 24


def plain_loop(pieces: int) -> float:
    """GB/s of a loop as anyone would write it: no code of ours, buffers of its own."""
    host = torch.ones(PIECE, dtype=torch.uint8).pin_memory()
    remote = torch.empty(PIECE, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        remote.copy_(host, non_blocking=True)
    torch.cuda.synchronize()
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    for _ in range(pieces):
        remote.copy_(host, non_blocking=True)
    ended.record()
    torch.cuda.synchronize()
    return pieces * PIECE / began.elapsed_time(ended) / 1e6


def memory_gib(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 2**20 if found else 0.0


def refusal(device: Any) -> dict[str, Any]:
    """What an allocation that cannot be had (8 TiB of the GPU's memory) turns into."""
    try:
        device.kernel(1 << 40)
    except DeviceError as error:
        return {"text": str(error), "code": error.code}
    return {}


def main() -> None:
    began = time.monotonic()
    device = cuda.open_device()
    opened_s = time.monotonic() - began
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".replace("GPU-GPU-", "GPU-")
    sample = open_link(uuid)
    idle = sample()
    copies = Copies(device, Amount(PIECE, 1.0, 0.3), sample)
    rates = {
        copy: copies.measure(copy).model_dump()
        for copy in ("pinned_h2d", "pinned_d2h", "pageable_h2d")
    }
    ours, plain = [], []
    for _ in range(ROUNDS):  # in turn, so that a neighbour is in both
        ours.append(Copies(device, Amount(PIECE, 0.5, 0.0), sample).measure("pinned_h2d").value)
        plain.append(plain_loop(pieces=50))
    link = copies.link()
    resident = {name: memory_gib(name) for name in ("RssAnon", "VmHWM")}
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "gpu": torch.cuda.get_device_name(0),
                "cpus": len(os.sched_getaffinity(0)),
                "open_s": opened_s,
                "arch_list": device.arch_list(),
                "capability": torch.cuda.get_device_capability(0),
                "kernel_error": device.kernel(NUMBERS) - NUMBERS * (NUMBERS - 1) / 2,
                **rates,
                "link_idle": idle and idle.model_dump(),
                "link_busy": link and link.model_dump(),
                "verified": copies.verify(),
                "ours_gb_per_s": ours,
                "plain_gb_per_s": plain,
                "ours_over_plain": statistics.median(ours) / statistics.median(plain),
                "resident_gib": resident,
                "refusal": refusal(device),
            }
        )
    )


if __name__ == "__main__":
    main()
