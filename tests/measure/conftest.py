"""What tests that start loaders in their own process leave behind, the next one would count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from preflight.measure.closing import end_workers, worker_pids


@pytest.fixture(autouse=True)
def no_workers_left() -> Iterator[None]:
    """The command's measuring process ends with its loader; these go on."""
    yield
    end_workers(worker_pids())
