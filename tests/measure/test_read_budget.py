"""How much a rank may read, and what it has read, of processes that really read."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preflight.checks.contract import Unit
from preflight.measure.read_budget import ReadBudget, allowed_gib, read_gib
from tests import making
from tests.fakes import write_machine
from tests.measure.test_supply import unit


def of_two_ranks(tmp_path: Path, share: float = 1.0, **changes: Any) -> Unit:
    made = unit(tmp_path, data="/data", data_state="ok", ranks=2, max_read_gib=16.0, **changes)
    return replace(made, limits=making.limits("dataloader", max_read_share=share))


@pytest.mark.parametrize(
    ("earlier", "gib"),
    [
        ({}, 8.0),
        ({"storage": {"read_gib": 6.0}}, 5.0),
        ({"storage": {"read_gib": 6.0}, "dataloader": [{"read_gib": 3.0}, {"read_gib": 5.0}]}, 1.0),
        ({"storage": None}, 8.0),
        ({"storage": {"read_gib": 20.0}}, 0.0),
    ],
)
def test_ranks_share_what_earlier_checks_have_left(
    tmp_path: Path, earlier: dict[str, Any], gib: float
) -> None:
    assert allowed_gib(replace(of_two_ranks(tmp_path), earlier=earlier)) == gib


def test_a_check_takes_its_share_and_generated_samples_have_no_bound(tmp_path: Path) -> None:
    assert allowed_gib(of_two_ranks(tmp_path, share=0.5)) == 4.0
    assert allowed_gib(unit(tmp_path)) == math.inf


def test_a_reading_of_each_rank_adds_up() -> None:
    assert read_gib([{"read_gib": 1.0}, {"read_gib": None}, {}]) == 1.0
    assert read_gib(None) == 0.0


def test_it_is_spent_before_the_look_that_would_come_too_late(tmp_path: Path) -> None:
    root = write_machine(tmp_path / "machine", {})

    def has_read(gib: float) -> None:
        write_machine(tmp_path / "machine", {"/proc/7/io": f"rchar: {int(gib * 2**30)}\n"})

    budget = ReadBudget(replace(of_two_ranks(tmp_path), machine=root))
    seen = []
    for gib in (100.0, 103.0, 105.0, 106.0):  # what came before the first look was not its doing
        has_read(gib)
        budget.look([7])
        seen.append((budget.read_gib, budget.spent))
    assert seen == [(0.0, False), (3.0, False), (5.0, False), (6.0, False)]
    has_read(107.5)
    budget.look([7])
    assert budget.spent and budget.read_gib == 7.5  # the next 1.5 would be over 8
    (tmp_path / "machine/proc/7/io").unlink()
    budget.look([7])
    assert budget.read_gib == 7.5  # what one that ended has read, it has read


def test_real_reads_show(tmp_path: Path) -> None:
    reads = "import sys; f = open('/dev/zero', 'rb', 0)\nfor _ in sys.stdin: f.read(1 << 20)"
    child = subprocess.Popen([sys.executable, "-c", reads], stdin=subprocess.PIPE)
    assert child.stdin is not None
    try:
        budget = ReadBudget(of_two_ranks(tmp_path))
        budget.look([child.pid, os.getpid()])
        child.stdin.write(b"\n" * 2048)
        child.stdin.flush()
        while budget.read_gib < 1.9:
            budget.look([child.pid])
    finally:
        child.kill()
        child.wait()
