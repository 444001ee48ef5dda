"""What the tests of staged cases share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.play import write_images

_NEEDS_A_QUIET_MACHINE = "test_three_causes.py"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Rates of CPUs are no test beside other tests: `make cases` names the file."""
    named = any(_NEEDS_A_QUIET_MACHINE in argument for argument in config.args)
    return True if collection_path.name == _NEEDS_A_QUIET_MACHINE and not named else None


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of images that all cases read."""
    folder = tmp_path_factory.mktemp("cases") / "images"
    write_images(folder)
    return folder
