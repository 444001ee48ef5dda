"""Tests that need a CUDA device: `make gpu-test`. Elsewhere they are skipped, and say why.

What they measure is printed at the end as a table and kept in reports/gpu-test.json.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
REPORTS = REPOSITORY / "reports"
_PROBE = "import torch; torch.cuda.init(); print(torch.cuda.get_device_name(0))"
_PROBE_LIMIT_S = 90
_KEPT_OF_A_RATE = ("value", "low", "high", "blocks")
_NUMBERS = pytest.StashKey[dict[str, Any]]()

Note = Callable[[str, Any], None]


def why_not() -> str | None:
    """Why nothing here can run; None where it can."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return "measured alone, by make gpu-test"
    if not glob.glob("/dev/nvidia*") and not os.path.exists("/dev/dxg"):
        return "no NVIDIA device node in /dev"
    try:
        # A process of its own: it may hang, and its context would stand in the measurement's way.
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"torch.cuda did not start in {_PROBE_LIMIT_S} s"
    if done.returncode:
        return f"torch.cuda does not start: {done.stderr.strip().splitlines()[-1]}"
    return None


@pytest.fixture(scope="session", autouse=True)
def needs_a_device() -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def note(request: pytest.FixtureRequest) -> Note:
    """Keep a measured number."""
    numbers = request.config.stash.setdefault(_NUMBERS, {})

    def keep(name: str, value: Any) -> None:
        numbers[name] = round(value, 3) if isinstance(value, float) else value

    return keep


@pytest.fixture(scope="session")
def measured(note: Note) -> Iterator[dict[str, Any]]:
    """What tests/gpu/on_device.py saw in a process of its own, once for all tests."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.on_device"], cwd=REPOSITORY, capture_output=True,
        text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for name, value in seen.items():
        rate = isinstance(value, dict) and "samples" in value
        note(name, {key: value[key] for key in _KEPT_OF_A_RATE} if rate else value)
    yield seen


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    numbers = config.stash.get(_NUMBERS, {})
    if not numbers:
        return
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / "gpu-test.json").write_text(json.dumps(numbers, indent=1))
    width = max(map(len, numbers))
    terminalreporter.section("measured")
    for name, value in numbers.items():
        terminalreporter.write_line(f"{name:{width}}  {value}")
