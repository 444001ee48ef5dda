"""Does torch carry code that this GPU can run? Names of architectures in, an answer out. Pure.

SASS, "sm_86", is machine code: it runs on the same major and its own or a later minor. PTX,
"compute_90", is compiled by the driver for any later GPU, if the driver knows that PTX (CUDA C++
programming guide, compute capabilities). Tegra's exceptions are left to the kernel that is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_ARCHITECTURE = re.compile(r"(sm|compute)_([0-9]+)([0-9])([af]?)")


class Coverage(NamedTuple):
    """Whether torch has code for a GPU; None: it cannot be told."""

    covered: bool | None
    by: str
    """The entry that covers it, or why nothing does."""


def coverage(
    arch_list: Sequence[str],
    capability: str | None,
    driver_cuda: str | None,
    torch_cuda: str | None,
) -> Coverage:
    """Hold torch.cuda.get_arch_list() against a compute capability like "9.0".

    `driver_cuda` is the newest CUDA that the loaded libcuda serves: PTX of a newer one it cannot
    compile. torch before 2.13 gives an empty list when it sees no GPU, which says nothing.
    """
    device = version_numbers(capability)
    found = [match for match in map(_ARCHITECTURE.fullmatch, arch_list) if match]
    if not found or len(device) != 2:
        return Coverage(None, "torch does not say what it was built for")
    ptx = None
    for match in found:
        kind, code = match[1], (int(match[2]), int(match[3]))
        if not _runs(kind, code, match[4], device):
            continue
        if kind == "sm":
            return Coverage(True, match[0])
        ptx = match[0]
    if ptx is None:
        return Coverage(False, "nothing in it runs on this architecture")
    driver, torch = version_numbers(driver_cuda), version_numbers(torch_cuda)
    if not driver or not torch:
        return Coverage(None, f"{ptx}, if the driver can compile it")
    if driver < torch:
        by = f"only {ptx} would, and a driver for CUDA {driver_cuda} cannot compile that of CUDA"
        return Coverage(False, f"{by} {torch_cuda}")
    return Coverage(True, ptx)


def _runs(kind: str, code: tuple[int, int], suffix: str, device: tuple[int, ...]) -> bool:
    if suffix == "a":  # made for that one architecture
        return code == device
    same_family = code[0] == device[0] and code[1] <= device[1]
    return same_family if kind == "sm" or suffix == "f" else code <= device


def version_numbers(text: str | None) -> tuple[int, ...]:
    """The leading dotted numbers of a version: "580.95.05-open" is (580, 95, 5); () without."""
    match = re.match(r"[0-9]+(\.[0-9]+)*", text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else ()
