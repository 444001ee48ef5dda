"""How long `--help` and `checks` take, and whether they keep clear of torch."""

from __future__ import annotations

import re
import subprocess
import time
from statistics import median

from bench.command import COMMAND, environment
from bench.table import Row, spread

_RUNS = 15
_HEAVY = re.compile(r"\|\s+(torch|numpy|pynvml|PIL)$", re.MULTILINE)


def measure(repeat: int) -> list[Row]:
    """Two rows for each command."""
    rows = []
    for argument in ("--help", "checks"):
        heavy = heavy_imports(_imports(argument))
        seconds = [_wall_s(argument) for _ in range(_RUNS * repeat)]
        rows += [
            Row(f"preflight {argument}: wall time", median(seconds), "s", at_most=0.3,
                note=f"median of {len(seconds)}: {spread(seconds)}"),
            Row(f"preflight {argument}: heavy modules loaded", len(heavy), at_most=0,
                note=", ".join(heavy)),
        ]  # fmt: skip
    return rows


def heavy_imports(import_times: str) -> list[str]:
    """Which of torch, numpy, pynvml and PIL stand in the output of `python -X importtime`."""
    return sorted(set(_HEAVY.findall(import_times)))


def _wall_s(argument: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        [COMMAND, argument], stdout=subprocess.DEVNULL, check=True, env=environment(), timeout=60
    )
    return time.perf_counter() - began


def _imports(argument: str) -> str:
    ran = subprocess.run(
        [COMMAND, argument], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        check=True, env={**environment(), "PYTHONPROFILEIMPORTTIME": "1"}, timeout=60,
    )  # fmt: skip
    if "preflight.cli" not in ran.stderr:
        raise RuntimeError("the import times do not name preflight.cli: nothing can be said")
    return ran.stderr
