"""sdist and wheel carry the threshold files and the report schema, and nothing of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
THRESHOLDS = {
    str(path.relative_to(ROOT)) for path in (ROOT / "thresholds").rglob("*.yaml") if path.is_file()
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both distributions, built from a copy so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    # Also what other tests write meanwhile: coverage's data files come and go.
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "reports", "__pycache__")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist")],
        cwd=source, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


def test_the_wheel(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"preflight/{name}" for name in THRESHOLDS} <= names
    assert {"preflight/report/preflight.schema.json", "preflight/py.typed"} <= names
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {"preflight"}


def test_the_sdist_holds_files_where_the_checkout_has_a_link(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {entry.name.partition("/")[2] for entry in archive if entry.isfile()}
    assert {f"preflight/{name}" for name in THRESHOLDS} <= files


def test_a_wheel_built_from_the_sdist_works(built: Path, tmp_path: Path) -> None:
    """`build` makes the wheel from the sdist: install it beside nothing of the checkout."""
    (wheel,) = built.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    done = subprocess.run([*install, str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import preflight\n"
        "assert preflight.__file__.startswith(sys.argv[1])\n"
        "from preflight.cli import run_command\n"
        "sys.exit(run_command(['thresholds', 'validate', *sys.argv[2:]]))"
    )
    files = [str(path) for path in (tmp_path / "preflight" / "thresholds").rglob("*.yaml")]
    assert len(files) == len(THRESHOLDS)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *files],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
