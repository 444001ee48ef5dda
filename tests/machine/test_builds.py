from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import types
from pathlib import Path

import pytest

from preflight.machine.builds import parse_version, torch_build

CUDA = "__version__ = '2.9.1+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip = None\n"
CPU = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
ROCM = "__version__ = '2.9.1+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.4'\n"
OLD = '__version__ = "1.13.1"\ncuda = "11.7"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CUDA, ("2.9.1+cu130", "13.0", None)),
        (CPU, ("2.13.0+cpu", None, None)),
        (ROCM, ("2.9.1+rocm6.4", None, "6.4.4")),
        (OLD, ("1.13.1", "11.7", None)),
    ],
)
def test_version_files(text: str, expected: tuple[str, str | None, str | None]) -> None:
    torch = parse_version(text)
    assert torch is not None and (torch.version, torch.cuda, torch.hip) == expected


@pytest.mark.parametrize("text", ["", "git_version = 'abc'\n", "__version__ = compute()\n"])
def test_version_files_that_name_no_version(text: str) -> None:
    assert parse_version(text) is None


def install(folder: Path, version: str | None) -> str:
    package = folder / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('torch was imported')")
    if version is not None:
        (package / "version.py").write_text(version)
    return str(folder)


def test_the_first_on_the_path_is_taken_and_never_run(tmp_path: Path) -> None:
    first, second = install(tmp_path / "a", CUDA), install(tmp_path / "b", CPU)
    found = torch_build([str(tmp_path), first, second])
    assert found is not None and found.cuda == "13.0"
    assert torch_build([install(tmp_path / "c", None)]) is None
    assert torch_build([str(tmp_path)]) is None
    (tmp_path / "torch").mkdir()  # a folder that happens to be called so
    assert torch_build([str(tmp_path)]) is None


def test_a_torch_without_a_spec_is_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert torch_build() is None


def test_the_installed_torch_is_found_without_importing_it() -> None:
    version = importlib.metadata.version("torch")
    program = (
        "import sys; from preflight.machine.builds import torch_build; "
        "print(torch_build().version, 'torch' in sys.modules)"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert seen.stdout.split() == [version, "False"], seen.stderr
