"""Runs one staged case: the command under its condition, then again with the remedy followed."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from preflight.data.generated import generate
from preflight.job import Sample
from tests.cases.groups import shielded
from tests.cases.staging import Place, Stage, all_of
from tests.command.running import Gate

ROOT = Path(__file__).parents[2]
_RUN = ("run", "--thresholds=cpu", "--deadline=75s")
_PATIENCE_S = 100.0
_BY_WORSE = ("fail", "error", "warn")
_IMAGES = 1400
_PHOTO = Sample(codec="jpeg", encoded_bytes=110_000, shape=(3, 224, 224), dtype="uint8")


@dataclass(frozen=True)
class Start:
    """One run of the command."""

    options: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    quiet: bool = True
    """Neighbours are no part of it: kept off where we may, and beside some it may be repeated."""


@dataclass(frozen=True)
class Case:
    """A condition, the cause that has to be named, and what its remedy makes of it."""

    name: str
    wanted: str
    """A row of the table of causes; with a dot in it, the id of a finding."""
    remedy: str
    """A pattern that the remedy printed has to hold."""
    start: Start
    after: Callable[[re.Match[str]], Start] | None = None
    """The remedy followed, with the numbers that it gave; None where it is not ours to follow."""
    demand_share: float = 0.0
    """The demand in shares of what `free` supplies, where no number is true of every machine."""
    free: Start | None = None
    in_cause: str = ""
    """A pattern that the cause printed has to hold."""


class LostReport(Exception):
    """A run left none."""


@dataclass(frozen=True)
class Run:
    """What one run left."""

    code: int
    page: str
    report: dict[str, Any]


@dataclass(frozen=True)
class Played:
    """What came of a case."""

    seen: str = ""
    remedy: str = ""
    cause: str = ""
    after: str = ""
    wrong: str = ""
    """What is not as it has to be."""
    skipped: str = ""
    seconds: float = 0.0
    tries: int = 1
    runs: tuple[Run, ...] = ()


def write_images(folder: Path) -> None:
    """JPEGs as large as photos: few of them distinct, each a file of its own."""
    folder.mkdir()
    made = generate(_PHOTO, 7, None)
    for number in range(_IMAGES):
        (folder / f"{number:04d}.jpg").write_bytes(made.fetch(number % len(made)))


def play(case: Case, images: Path, tries: int = 2) -> Played:
    """Run it, and what follows; again where others used the CPUs meanwhile."""
    began = time.monotonic()
    tried = 0
    while True:
        tried += 1
        try:
            played = _once(case, images)
        except pytest.skip.Exception as skipped:
            return Played(skipped=str(skipped))
        except LostReport as lost:
            return Played(wrong=str(lost))
        disturbed = case.start.quiet and any(_contended(ran.report) for ran in played.runs)
        if not (played.wrong and disturbed) or tried == tries:
            return replace(played, seconds=time.monotonic() - began, tries=tried)


def _once(case: Case, images: Path) -> Played:
    demand: tuple[str, ...] = ()
    if case.free is not None:
        free = run(case.free, images, "--set=dataloader.demand_samples_per_s=0.5")
        needed = case.demand_share * supply(free)
        demand = (f"--set=dataloader.demand_samples_per_s={needed:.1f}",)
    ran = run(case.start, images, *demand)
    seen, finding = _decisive(ran.report, case.wanted)
    shown, cause = finding.get("remedy") or "", finding.get("cause") or ""
    match = re.search(case.remedy, shown)
    wrong = [
        what
        for what, right in (
            ("cause", seen == case.wanted),
            ("words of the cause", re.search(case.in_cause, cause)),
            ("remedy", match),
        )
        if not right
    ]
    runs, after = [ran], ""
    if match is not None and case.after is not None:
        runs.append(run(case.after(match), images, *demand))
        after = "pass" if runs[1].code == 0 else f"{runs[1].code}: {runs[1].report['reason']}"
        wrong += [] if after == "pass" else [f"after the remedy: {after}"]
    return Played(seen, shown, cause, after, "; ".join(wrong), runs=tuple(runs))


def run(start: Start, images: Path, *more: str) -> Run:
    """The real command, in folders of its own."""
    folder = Path(tempfile.mkdtemp(prefix="preflight-case-"))
    gate = Gate(folder, Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp")), covered=False)
    try:
        stages = (shielded, *start.stages) if start.quiet else start.stages
        with all_of(stages, Place(folder, images)) as under:
            env = {"PYTHONPATH": str(ROOT), **under.env, **start.env}
            options = (*start.options, *under.options, *more)
            running = gate.start(*_RUN, *options, wrapped=under.wrapped, env=env)
            try:
                ran = running.end(_PATIENCE_S)
            finally:
                gate.close()  # before the condition goes: what hangs would hold it
            page = ran.stdout + ran.stderr
            if not (ran.reports / "preflight.json").exists():
                raise LostReport(f"exit code {ran.code} without a report: {page}")
            return Run(ran.code, page, ran.report)
    finally:
        gate.close()
        shutil.rmtree(folder, ignore_errors=True)


def supply(ran: Run) -> float:
    """Samples/s of the loader."""
    for result in ran.report["results"]:
        if result["check"] == "dataloader":
            rate: float = result["reading"]["supply_samples_per_s"]["value"]
            return rate
    raise AssertionError("no loader was measured")


def _decisive(report: dict[str, Any], wanted: str) -> tuple[str, dict[str, Any]]:
    """The finding that says why: the first of the worst ones, by cause or by id, as is wanted."""
    found = [finding for result in report["results"] for finding in result["findings"]]
    for outcome in _BY_WORSE:
        for finding in found:
            if finding["outcome"] == outcome:
                by_id = "." in wanted or not finding.get("cause_id")
                return finding["id" if by_id else "cause_id"], finding
    return "pass", {}


def _contended(report: dict[str, Any]) -> bool:
    return any(
        finding["id"] == "dataloader.contended" and finding["outcome"] != "pass"
        for result in report["results"]
        for finding in result["findings"]
    )
