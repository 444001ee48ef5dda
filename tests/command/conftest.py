"""What every test of the command gets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command.running import SHM, Gate, can_mount


@pytest.fixture
def gate(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Gate]:
    """The command, in folders of its own. TMPDIR is short: sockets in it have 107 characters.

    A module whose runs are many and cover what others cover says UNCOVERED.
    """
    gate = Gate(tmp_path, Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp")))
    gate.covered = not getattr(request.module, "UNCOVERED", False)
    yield gate
    gate.close()


@pytest.fixture
def clean_gate(gate: Gate) -> Gate:
    """The same with a /dev/shm of its own, where that can be had, so that leftovers show."""
    if can_mount():
        gate.shm = Path(tempfile.mkdtemp(prefix="pf-", dir=SHM))
    return gate
