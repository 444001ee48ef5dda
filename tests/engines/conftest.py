"""Engines, the stand-in base and preflight's image for the tests here: `make engine-test`.

A test is skipped only where an engine's packages cannot be installed, and says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.engines import engine as engines
from tests.engines import standin_base
from tests.engines.engine import Daemon, Engine, Missing


class _ByEngine(LoadScopeScheduling):
    """Under `-n 2` all tests of an engine are one worker's, so that it is started once.

    By name, which is all that is known here: a test that is named otherwise costs a second start.
    """

    def _split_scope(self, nodeid: str) -> str:
        words = {"docker": "docker", "compose": "docker", "slurm": "slurm"}
        return next((engine for word, engine in words.items() if word in nodeid), "podman")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByEngine:
    """What -n asks; --dist loadgroup would do, but for pytest 9.2, whose tests keep their ids."""
    return _ByEngine(config, log)


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
