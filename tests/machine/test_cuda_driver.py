"""libcuda: which file is loaded, and what is asked of it; with a small one built here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from preflight.machine.cuda_driver import describe, loaded_file

SOURCE = Path(__file__).with_name("libcuda.c")
PROGRAM = """
import json
from preflight.machine import cuda_driver
library = cuda_driver.load()
driver = cuda_driver.start(library) if library.handle else None
print(json.dumps([record.model_dump() if record else None for record in (library.facts, driver)]))
"""


def build(folder: Path, name: str, *flags: str) -> None:
    """A libcuda in `folder`, with the link that the loader looks for."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", *flags]
    subprocess.run([*command, "-o", str(folder / name), str(SOURCE)], check=True)
    if name != "libcuda.so.1":
        (folder / "libcuda.so.1").symlink_to(name)


def asked(folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Library and driver as a process with `folder` on the loader's path sees them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    library, driver = json.loads(done.stdout)
    return library, driver


def test_a_driver_that_works(tmp_path: Path) -> None:
    build(tmp_path, "libcuda.so.580.95.05")
    library, driver = asked(tmp_path)
    assert library == {
        "loaded": True, "error": None, "path": str(tmp_path / "libcuda.so.580.95.05"),
        "version": "580.95.05", "compat": False, "stub": False,
    }  # fmt: skip
    assert driver is not None
    devices = driver.pop("devices")
    unanswered = driver.pop("unanswered")
    assert driver == {
        "cuda_version": "13.0", "init_code": 0, "init_name": None, "device_count": 2,
        "count_code": None,
    }  # fmt: skip
    assert devices == [
        {
            "ordinal": number, "name": f"NVIDIA Test GPU {40 + number}",
            "uuid": "-".join(f"{40 + number:02x}" * count for count in (4, 2, 2, 2, 6)),
            "compute_capability": "9.0", "integrated": number == 1,
            "pci_bus_id": f"0000:1b:00.{number}",
        }
        for number in (0, 1)
    ]  # fmt: skip
    assert unanswered == {"cuGetErrorName": "code 1"}


def test_a_driver_that_does_not_start(tmp_path: Path) -> None:
    build(tmp_path / "cuda" / "compat", "libcuda.so.570.86.10", "-DINIT_CODE=802")
    library, driver = asked(tmp_path / "cuda" / "compat")
    assert (library["compat"], library["version"]) == (True, "570.86.10")
    assert driver is not None
    assert (driver["init_code"], driver["init_name"]) == (802, "CUDA_ERROR_SYSTEM_NOT_READY")
    assert (driver["device_count"], driver["devices"]) == (None, [])
    assert driver["cuda_version"] == "13.0"


def test_an_old_driver_lacks_functions_and_a_stub_names_no_version(tmp_path: Path) -> None:
    build(tmp_path / "stubs", "libcuda.so", "-DOLD")
    library, driver = asked(tmp_path / "stubs")
    assert (library["stub"], library["version"]) == (True, None)
    assert driver is not None
    assert driver["init_name"] is None
    assert driver["devices"][0]["uuid"] == "28282828-2828-2828-2828-282828282828"
    assert driver["devices"][0]["pci_bus_id"] is None
    assert driver["unanswered"] == dict.fromkeys(
        ("cuGetErrorName", "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId"), "missing"
    )


def test_a_device_that_does_not_answer(tmp_path: Path) -> None:
    build(tmp_path, "libcuda.so.1", "-DDEAF")
    _, driver = asked(tmp_path)
    assert driver is not None
    assert [device["name"] for device in driver["devices"]] == [None, None]
    assert driver["unanswered"]["cuDeviceGet"] == "code 101"


def test_no_library_and_one_that_cannot_be_loaded(tmp_path: Path) -> None:
    library, driver = asked(tmp_path)
    assert (library["loaded"], driver) == (False, None)
    assert "No such file" in library["error"]
    (tmp_path / "libcuda.so.1").touch()  # what a runtime leaves behind in a committed image
    library, driver = asked(tmp_path)
    assert (library["loaded"], driver) == (False, None)
    assert "file too short" in library["error"]


@pytest.mark.parametrize(
    ("path", "version", "compat", "stub"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05", "580.95.05", False, False),
        ("/usr/local/cuda-12.8/compat/libcuda.so.570.86.10", "570.86.10", True, False),
        ("/usr/local/cuda/compat/lib.real/libcuda.so.575.57.08", "575.57.08", True, False),
        ("/opt/conda/cuda-compat/libcuda.so.575.57.08", "575.57.08", True, False),
        ("/usr/local/cuda/lib64/stubs/libcuda.so", None, False, True),
        ("/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1.1", None, False, False),
        ("/usr/lib/wsl/lib/libcuda.so.1", None, False, False),
        ("/srv/compat-tests/libcuda.so.455.32", "455.32", False, False),
        (None, None, False, False),
    ],
)
def test_what_a_path_tells(path: str | None, version: str | None, compat: bool, stub: bool) -> None:
    seen = describe(path)
    assert (seen.version, seen.compat, seen.stub) == (version, compat, stub)


MAPS = """\
55d0-55d1 r--p 00000000 08:01 12 /usr/bin/python3.11
7f00-7f01 r--p 00000000 08:01 13 /usr/local/lib/libcudart.so.13.0.88
7f02-7f03 r-xp 00000000 08:01 14 {first}
7f04-7f05 rw-p 00000000 00:00 0
7f06-7f07 r--p 00000000 08:01 15 {second}
7f08-7f09 rw-p 00000000 00:00 0 [stack]
"""


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("/lib/libcuda.so.580.95.05", "/lib/libc.so.6", "/lib/libcuda.so.580.95.05"),
        ("/my lib/libcuda.so.1", "/lib/libcudadebugger.so.1", "/my lib/libcuda.so.1"),
        ("/lib/libcuda.so.550.54.14 (deleted)", "", "/lib/libcuda.so.550.54.14"),
        ("/wsl/lib/libcuda.so.1", "/wsl/drivers/libcuda.so.1.1", "/wsl/lib/libcuda.so.1"),
        ("/wsl/lib/libcuda.so.1", "/d/libcuda.so.560.35", "/d/libcuda.so.560.35"),
        ("/lib/libc.so.6", "", None),
    ],
)
def test_the_library_among_the_mapped_files(first: str, second: str, found: str | None) -> None:
    assert loaded_file(MAPS.format(first=first, second=second)) == found
