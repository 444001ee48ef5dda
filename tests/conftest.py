"""What tests of several folders share."""

from __future__ import annotations

import pytest

from tests.gpu_standins.building import Libraries, build


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """Stand-ins for the libraries of NVIDIA's driver."""
    return build(tmp_path_factory.mktemp("libraries"))
