"""The rule of judgement on simulated series: runs bench/simulate.py and sums up its table."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.table import Row

_RUNS, _MOST_RUNS = 1_000, 10_000
_SCRIPT = Path(__file__).with_name("simulate.py")
_CASE = re.compile(
    r"(?P<true>[+-]\d+%) +(?P<wrong>[\d.]+) +(?P<bound>[\d.]+) +(?P<reached>[\d.]+)"
    r" +(?P<missed>[\d.]+) +(?P<close>[\d.]+) +(?P<open>[\d.]+) +(?P<blocks>\d+)(?: +BROKEN)?$",
    re.MULTILINE,
)


class Case(NamedTuple):
    """One line of the script's table; percentages of its runs."""

    true: str
    wrong: float
    bound: float
    close: float
    open: float
    blocks: int


def measure(repeat: int) -> list[Row]:
    """One row for each distance of the true rate from the limit."""
    runs = min(_RUNS * repeat, _MOST_RUNS)
    ran = subprocess.run(
        [sys.executable, str(_SCRIPT), "--runs", str(runs)], stdout=subprocess.PIPE, text=True
    )
    cases = parse(ran.stdout)
    if not cases:
        raise RuntimeError(f"simulate.py exited {ran.returncode} without a table")
    return [
        _row([case for case in cases if case.true == true], runs)
        for true in dict.fromkeys(case.true for case in cases)
    ]


def parse(table: str) -> list[Case]:
    """The cases in what simulate.py prints."""
    return [
        Case(
            found["true"], float(found["wrong"]), float(found["bound"]), float(found["close"]),
            float(found["open"]), int(found["blocks"]),
        )
        for found in _CASE.finditer(table)
    ]  # fmt: skip


def _row(cases: Sequence[Case], runs: int) -> Row:
    wrong, close, undecided = (
        sum(values) / len(cases)
        for values in zip(*((case.wrong, case.close, case.open) for case in cases), strict=True)
    )
    note = (
        f"worst of {len(cases)} series x {runs} runs; on average wrong {wrong:.2g} %, "
        f"close {close:.3g} %, undecided {undecided:.3g} %"
    )
    return Row(
        f"simulated series {cases[0].true} from the limit: wrong",
        max(case.wrong for case in cases), "%",
        at_most=min(case.bound for case in cases), note=note,
    )  # fmt: skip
