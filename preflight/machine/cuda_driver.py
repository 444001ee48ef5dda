"""Asks libcuda: which file is it, does CUDA start, which devices does it see?

The only file that loads libcuda. To be called in a process that may be killed: cuInit can hang in
the kernel. Missing functions and error codes are values here, never exceptions; nothing is judged.
"""

from __future__ import annotations

import ctypes
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from preflight.cuda_facts import CudaDriver, CudaGpu, CudaLibrary

LIBRARY = "libcuda.so.1"

# cuda.h: enum CUdevice_attribute
_INTEGRATED, _MAJOR, _MINOR = 18, 75, 76
_TEXT_BYTES = 256
_FILE = re.compile(r"libcuda\.so(\.[0-9][0-9.]*)?")
# Not libcuda.so.1.1, which is what Tegra and WSL call theirs.
_DRIVER_VERSION = re.compile(r"[0-9]{3,}(\.[0-9]+)+")


@dataclass(frozen=True)
class Library:
    """A libcuda that was looked for; `handle` is None where there is none."""

    facts: CudaLibrary
    handle: ctypes.CDLL | None


def load() -> Library:
    """Load libcuda.so.1 as torch would. It starts nothing and opens no device."""
    try:
        handle = ctypes.CDLL(LIBRARY)
    except OSError as error:
        missing = CudaLibrary(
            loaded=False, error=str(error), path=None, version=None, compat=False, stub=False
        )
        return Library(missing, None)
    return Library(describe(loaded_file(_own_maps())), handle)


def describe(path: str | None) -> CudaLibrary:
    """What the place and the name of a loaded libcuda tell of it."""
    file = PurePosixPath(path or "")
    folders = file.parts[:-1]
    suffix = file.name.removeprefix("libcuda.so.")
    return CudaLibrary(
        loaded=True,
        error=None,
        path=path,
        version=suffix if _DRIVER_VERSION.fullmatch(suffix) else None,
        compat=any(folder == "compat" or folder.startswith("cuda-compat") for folder in folders),
        stub="stubs" in folders,
    )


def loaded_file(maps: str) -> str | None:
    """The libcuda among the files that /proc/PID/maps lists; None when it shows none.

    Under WSL a small library loads the real one: of several, one that names its version.
    """
    # Address, permissions, offset, device, inode, path: proc(5).
    lines = [line.split(maxsplit=5) for line in maps.splitlines()]
    paths = [fields[5].removesuffix(" (deleted)") for fields in lines if len(fields) == 6]
    ours = [path for path in paths if _FILE.fullmatch(PurePosixPath(path).name)]
    versioned = [path for path in ours if describe(path).version]
    return next(iter([*versioned, *ours]), None)


def _own_maps() -> str:
    # Our own process, not the node: no Root.
    try:
        return Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return ""


def start(library: Library) -> CudaDriver:
    """Start CUDA and ask every device it lists.

    May hang in the kernel. With CUDA_VISIBLE_DEVICES set CUDA lists those devices alone.
    """
    assert library.handle is not None
    asked = _Asked(library.handle)
    version = ctypes.c_int()
    # Answers before cuInit, and when cuInit fails.
    known = asked("cuDriverGetVersion", [_INT], ctypes.byref(version)) == 0
    code = asked("cuInit", [ctypes.c_uint], 0)
    name = None if code is None else _error_name(asked, code)
    count = ctypes.c_int()
    count_code = asked("cuDeviceGetCount", [_INT], ctypes.byref(count)) if code == 0 else None
    counted = count_code == 0
    return CudaDriver(
        # 1000 x major + 10 x minor: the documentation of cuDriverGetVersion
        cuda_version=f"{version.value // 1000}.{version.value % 1000 // 10}" if known else None,
        init_code=code,
        init_name=name,
        device_count=count.value if counted else None,
        count_code=count_code or None,
        devices=tuple(_device(asked, ordinal) for ordinal in range(count.value if counted else 0)),
        unanswered=asked.unanswered,
    )


_INT = ctypes.POINTER(ctypes.c_int)
_UUID = ctypes.c_ubyte * 16


@dataclass
class _Asked:
    """Calls of a library, with what it did not answer. ctypes lets other threads run meanwhile."""

    handle: ctypes.CDLL
    unanswered: dict[str, str] = field(default_factory=dict)

    def __call__(self, name: str, types: list[Any], *arguments: Any) -> int | None:
        function = getattr(self.handle, name, None)
        if function is None:
            self.unanswered[name] = "missing"
            return None
        function.argtypes, function.restype = types, ctypes.c_int
        code = int(function(*arguments))
        if code != 0 and name != "cuInit":
            self.unanswered[name] = f"code {code}"
        return code


def _error_name(asked: _Asked, code: int) -> str | None:
    name = ctypes.c_char_p()
    types = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    if asked("cuGetErrorName", types, code, ctypes.byref(name)) != 0 or name.value is None:
        return None
    return name.value.decode(errors="replace")


def _device(asked: _Asked, ordinal: int) -> CudaGpu:
    handle = ctypes.c_int()
    if asked("cuDeviceGet", [_INT, ctypes.c_int], ctypes.byref(handle), ordinal) != 0:
        return CudaGpu(
            ordinal=ordinal, name=None, uuid=None, compute_capability=None, integrated=None,
            pci_bus_id=None,
        )  # fmt: skip
    device = handle.value
    bus_id = _text(asked, "cuDeviceGetPCIBusId", device)
    major, minor = _attribute(asked, _MAJOR, device), _attribute(asked, _MINOR, device)
    integrated = _attribute(asked, _INTEGRATED, device)
    return CudaGpu(
        ordinal=ordinal,
        name=_text(asked, "cuDeviceGetName", device),
        uuid=_uuid(asked, device),
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        integrated=None if integrated is None else bool(integrated),
        pci_bus_id=bus_id.lower() if bus_id else None,
    )


def _text(asked: _Asked, function: str, device: int) -> str | None:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    types = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    if asked(function, types, text, _TEXT_BYTES, device) != 0:
        return None
    return text.value.decode(errors="replace")


def _attribute(asked: _Asked, attribute: int, device: int) -> int | None:
    value = ctypes.c_int()
    types = [_INT, ctypes.c_int, ctypes.c_int]
    answered = asked("cuDeviceGetAttribute", types, ctypes.byref(value), attribute, device) == 0
    return value.value if answered else None


def _uuid(asked: _Asked, device: int) -> str | None:
    value = _UUID()
    types = [ctypes.POINTER(_UUID), ctypes.c_int]
    # The second version gives a MIG slice's own UUID; drivers before 11.4 have only the first.
    for function in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if asked(function, types, ctypes.byref(value), device) == 0:
            return str(uuid.UUID(bytes=bytes(value)))
    return None
