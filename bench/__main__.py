"""Runs the measurements and prints their table; exits 1 when a bound is broken.

    python -m bench [--only NAME ...] [--repeat N]

Each says how long it took. `--repeat N` makes N times as many runs, turns
and starts of each and pools them. A number without a bound is information.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import datetime, timezone
from importlib import import_module

from bench.table import HEADER, Row, broken, line

NAMES = (
    "start_up", "many_files", "host_run", "verdict_time", "storage_ratio", "supply_ratio", "series",
    "known_rate", "utilisation", "recommended",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=NAMES, help="repeatable")
    parser.add_argument("--repeat", type=int, default=1, metavar="N")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error("--repeat: at least 1")
    print(f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {_machine()}", flush=True)
    print(HEADER, flush=True)
    rows, took = [], []
    for name in options.only or NAMES:
        began = time.monotonic()
        found = measured(name, options.repeat)
        print("\n".join(map(line, found)), flush=True)
        took.append(f"{name} {time.monotonic() - began:.0f} s")
        rows += found
    print(f"{', '.join(took)}; load after: {os.getloadavg()[0]:.2f}")
    print(f"{len(rows)} numbers, {broken(rows)} bounds broken")
    return 1 if broken(rows) else 0


def measured(name: str, repeat: int) -> list[Row]:
    """The rows of one measurement; one row that says why where it failed."""
    try:
        rows: list[Row] = import_module(f"bench.{name}").measure(repeat)
    except Exception as error:  # the other measurements are still worth having
        return [Row(name, None, note=f"{type(error).__name__}: {error}")]
    return rows


def _machine() -> str:
    cpus = len(os.sched_getaffinity(0))
    return f"{os.uname().machine}, {cpus} CPUs, load before: {os.getloadavg()[0]:.2f}"


if __name__ == "__main__":
    sys.exit(main())
