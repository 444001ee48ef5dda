"""Builds the stand-in libraries of NVIDIA's driver from their C sources.

They answer from a scenario (see scenario.h). A library can be built without some of its functions,
as an older driver's is.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_SOURCES = Path(__file__).parent
_OBJECTS = ("nvml", "cuda", "scenario")
_EXPORTED = {"nvml": "nvml*", "cuda": "cu*"}


@dataclass
class Libraries:
    """The compiled sources, and what was linked from them."""

    folder: Path
    _linked: dict[tuple[str, ...], Path] = field(default_factory=dict)

    def nvml(self, missing: Sequence[str] = ()) -> Path:
        """A libnvidia-ml.so.1."""
        return self._link("nvml", missing)

    def cuda(self, missing: Sequence[str] = ()) -> Path:
        """A libcuda.so.1."""
        return self._link("cuda", missing)

    def _link(self, which: str, missing: Sequence[str]) -> Path:
        key = (which, *missing)
        if key not in self._linked:
            library = self.folder / f"{len(self._linked)}-{which}.so"
            script = library.with_suffix(".map")
            local = "".join(f"{name}; " for name in (*missing, "*"))
            script.write_text(f"{{ global: {_EXPORTED[which]}; local: {local}}};\n")
            objects = (str(self.folder / f"{name}.o") for name in (which, "scenario"))
            _run(
                _compiler(), "-shared", f"-Wl,--version-script={script}", "-o", str(library),
                *objects,
            )  # fmt: skip
            self._linked[key] = library
        return self._linked[key]


def build(folder: Path) -> Libraries:
    """Compile into `folder`; skips the test that asks where there is no C compiler."""
    if not _compiler():
        pytest.skip("there is no C compiler here to build the stand-in driver libraries with")
    for name in _OBJECTS:
        _run(
            _compiler(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC",
            "-c", str(_SOURCES / f"{name}.c"), "-o", str(folder / f"{name}.o"),
        )  # fmt: skip
    return Libraries(folder)


def _compiler() -> str:
    return shutil.which("cc") or shutil.which("gcc") or ""


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
