"""Settings, checks and facts in; what will run, in which order, or why it will not. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from preflight.checks.contract import Check, DemandLimits, Limits
from preflight.diagnosis.loader_failures import FAILURES
from preflight.facts import Facts
from preflight.job import Consumer, DataOn, DataState, Job, Loader, Sample, Stats
from preflight.settings.tree import did_you_mean

# More workers than this per rank rarely help on one loader: published runs peak at 8 to 16.
_MOST_AUTO_WORKERS = 8

NO_DATA = "no data path was named (--data)"

Checks = Mapping[str, Check[Any, Any]]


class UsageError(Exception):
    """Options are wrong, or leave nothing to run: exit code 2, nothing was measured."""


@dataclass(frozen=True)
class PlannedUnit:
    """One process of a check's work."""

    subject: str | None = None
    cuda_id: str | None = None
    """The one device in its CUDA_VISIBLE_DEVICES, "" for none; None: it stays as it is."""
    rank: int = 0


@dataclass(frozen=True)
class Planned:
    """One check of the plan."""

    check: Check[Any, Any]
    limits: Limits
    skip: str | None
    """Why it does not apply here; None when it will run."""
    units: tuple[PlannedUnit, ...] = (PlannedUnit(),)


@dataclass(frozen=True)
class Plan:
    """What will run."""

    planned: tuple[Planned, ...]
    job: Job
    facts: Facts
    deadline_s: float
    waive: frozenset[str] = frozenset()


def check_ids(
    checks: Checks, only: Sequence[str], skip: Sequence[str], waive: Sequence[str]
) -> None:
    """Refuse ids that nothing has: a misspelt waiver must not look like a verdict.

    Raises:
        UsageError: naming the option and what may have been meant.
    """
    for option, ids in (("--check", only), ("--skip", skip)):
        for id in ids:
            if id not in checks:
                hint = did_you_mean(id, checks)
                raise UsageError(f"{option} {id}: there is no such check.{hint}")
    ends = {failure.finding for failure in FAILURES}  # what a unit that broke is told under
    findings = {f"{id}.{name}" for id, check in checks.items() for name in (*check.findings, *ends)}
    for id in waive:
        if id not in checks and id not in findings:
            hint = did_you_mean(id, {*checks, *findings})
            raise UsageError(f"--waive {id}: there is no such check or finding.{hint}")


def select(
    listed: Sequence[str], checks: Checks, only: Sequence[str], skip: Sequence[str]
) -> tuple[str, ...]:
    """The ids to run, each after what it needs.

    Raises:
        UsageError: nothing is left.
    """
    wanted = _with_needs(only, checks) if only else listed
    chosen = [id for id in wanted if id not in skip]
    if not chosen:
        raise UsageError(
            "nothing is left to run: --check and --skip leave no check "
            f"(run.checks lists {', '.join(listed)})"
        )
    return _ordered(chosen, checks)


def _with_needs(ids: Sequence[str], checks: Checks) -> list[str]:
    found: list[str] = []
    for id in ids:
        found += _with_needs(checks[id].needs, checks)
        found.append(id)
    return list(dict.fromkeys(found))


def _ordered(ids: Sequence[str], checks: Checks) -> tuple[str, ...]:
    ordered: dict[str, None] = {}

    def place(id: str) -> None:
        for need in (*checks[id].needs, *checks[id].uses):
            if need in ids:
                place(need)
        ordered[id] = None

    for id in ids:
        place(id)
    return tuple(ordered)


def make_job(
    *,
    sample: Sample,
    loader: Loader,
    stats: Stats,
    consumer: Consumer,
    workload: str | None,
    facts: Facts,
    data: str | None,
    data_state: DataState | None,
    gpu_sharing: Literal["exclusive", "shared"],
    seed: int,
    max_read_gib: float,
    pace_ratio: float,
    data_writable_at: str | None = None,
    data_on: DataOn | None = None,
    dataset: str | None = None,
    explain: bool = False,
) -> Job:
    """Resolve `auto` against this machine: what exactly is measured."""
    ranks = loader.ranks if loader.ranks != "auto" else max(1, len(facts.cuda_devices()))
    fit = max(1, min(_MOST_AUTO_WORKERS, math.floor(facts.cpu.effective / ranks)))
    workers = fit if loader.num_workers == "auto" else loader.num_workers
    return Job(
        sample=sample, loader=loader, stats=stats, consumer=consumer, workload=workload,
        num_workers=workers, ranks=ranks, data=data, data_state=data_state,
        gpu_sharing=gpu_sharing, data_writable_at=data_writable_at, seed=seed,
        data_on=data_on, dataset=dataset, explain=explain, max_read_gib=max_read_gib,
        # What is beneath an unknown one may be an object store, which others read from too.
        pace_ratio=pace_ratio
        if data_on is not None and data_on.kind in ("network", "unknown")
        else None,
    )  # fmt: skip


def make_plan(
    ids: Sequence[str],
    checks: Checks,
    limits: Mapping[str, Limits],
    job: Job,
    facts: Facts,
    *,
    gpu_expected: bool,
    deadline_s: float,
    waive: Sequence[str] = (),
) -> Plan:
    """Bind each check to its limits and units, and ask whether it applies here."""

    def bind(check: Check[Any, Any]) -> Planned:
        held = limits[check.id]
        if isinstance(held, DemandLimits):
            held = held.at_ranks(job.ranks)
        skip = why_not(check, held, facts, gpu_expected=gpu_expected, no_data=_no_files(job))
        return Planned(check, held, skip, _units(check, job, facts))

    planned = tuple(bind(checks[id]) for id in ids)
    return Plan(planned, job, facts, deadline_s, frozenset(waive))


def why_not(
    check: Check[Any, Any],
    limits: Limits,
    facts: Facts,
    *,
    gpu_expected: bool,
    no_data: str | None,
) -> str | None:
    """Why a check does not apply here; None when it does. `no_data`: why there are no files."""
    if check.gpu and not gpu_expected:
        return "no GPU is expected here (gpu: none)"
    if check.data and no_data is not None:
        return no_data
    return check.applies(facts, limits)


def _no_files(job: Job) -> str | None:
    if job.data is None:
        return NO_DATA
    if job.dataset is not None and job.data_state == "not_a_folder":
        return "--data names one file, which only the job's own data set knows how to read"
    return None


def _units(check: Check[Any, Any], job: Job, facts: Facts) -> tuple[PlannedUnit, ...]:
    devices = facts.cuda_devices()
    if check.fan_out == "gpu" and devices:
        return tuple(PlannedUnit(device.subject, device.cuda_id) for device in devices)
    if check.fan_out == "rank":
        # As a launcher does it: local rank R takes device R; without enough of them they share.
        ids = [
            devices[rank % len(devices)].cuda_id if devices else None for rank in range(job.ranks)
        ]
        return tuple(PlannedUnit(f"rank {rank}", id, rank) for rank, id in enumerate(ids))
    return (PlannedUnit(),)
