"""Engines, the stand-in base and preflight's image for the tests here: `make engine-test`.

A test is skipped only where an engine's packages cannot be installed, and says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines import engine as engines
from tests.engines import standin_base
from tests.engines.engine import Daemon, Engine, Missing


@pytest.hookimpl(tryfirst=True)  # before the workers name the tests after their groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With workers (--dist loadgroup) each engine is in one of them, and started once."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(_engine_of(item)))


def _engine_of(item: pytest.Item) -> str:
    if isinstance(item, pytest.Function):
        if hasattr(item, "callspec") and "engine" in item.callspec.params:
            return str(item.callspec.params["engine"])
        if "cluster" in item.fixturenames:
            return "slurm"
        if "docker_daemon" in item.fixturenames:
            return "docker"
    return "podman"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What `.ci/run` ends with: how many there were."""
    counts = {word: len(terminalreporter.stats.get(word, ()))
              for word in ("passed", "failed", "error", "skipped")}  # fmt: skip
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    terminalreporter.write_line(f"engine tests (podman, docker, Compose, Slurm): {said}")


@pytest.fixture(scope="session")
def base_root() -> Iterator[Path]:
    """The stand-in base as a folder. Beside the installation, for hard links."""
    folder = Path(tempfile.mkdtemp(prefix="pf-base-"))
    try:
        standin_base.make(folder / "root")
        yield folder / "root"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def podman(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """podman(*arguments), with the stand-in base in its storage."""
    folder = Path(tempfile.mkdtemp(prefix="pf-podman-"))
    try:
        engine = engines.podman(folder)
    except Missing as why:
        folder.rmdir()
        pytest.skip(str(why))
    try:
        engine.import_base(request.getfixturevalue("base_root"))
        yield engine
    finally:
        engines.end_podman(engine, folder)


@pytest.fixture(scope="session")
def docker_daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A docker daemon; its base is closed to pip, as a distribution's is."""
    folder = Path(tempfile.mkdtemp(prefix="pf-docker-"))
    try:
        daemon = engines.docker(folder)
    except Missing as why:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(str(why))
    try:
        root: Path = request.getfixturevalue("base_root")
        with standin_base.externally_managed(root):
            daemon.engine.import_base(root)
        yield daemon
    finally:
        daemon.end()


@pytest.fixture(scope="session")
def docker(docker_daemon: Daemon) -> Engine:
    """docker(*arguments)."""
    return docker_daemon.engine


@pytest.fixture(scope="session")
def image(podman: Engine) -> str:
    """preflight's image in podman."""
    return podman.image()


@pytest.fixture(scope="session")
def docker_image(docker: Engine) -> str:
    """preflight's image in docker."""
    return docker.image()


@pytest.fixture(scope="session", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn, with preflight's image."""
    found: Engine = request.getfixturevalue(request.param)
    found.image()
    return found
