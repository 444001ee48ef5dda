"""The limits check's verdict: what was seen in, findings out. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from preflight.checks.limits.reading import LimitsLimits, LimitsReading
from preflight.diagnosis.remedies import more_memory
from preflight.judge import Miss, at_least, at_most, holds
from preflight.model import Finding
from preflight.outcome import Outcome


def judge(readings: Sequence[LimitsReading], limits: LimitsLimits) -> list[Finding]:
    """Hold each limit of the container against the loader's need."""
    seen = readings[0]
    findings = [_workers(seen, limits), _memory(seen, limits)]
    if seen.nofile is not None:
        cause = (
            f"{seen.nofile} open files are allowed; the loader and the training process may need "
            f"{seen.nofile_need}"
        )
        remedy = f"raise it: ulimit -n {seen.nofile_need} or docker run --ulimit nofile=65536"
        findings.append(
            at_least("limits.nofile", seen.nofile, seen.nofile_need, "files", Miss(cause, remedy))
        )
    if seen.pids_free is not None:
        cause = (
            f"{seen.pids_free} more processes and threads are allowed; the loader and the training "
            f"process may need {seen.pids_need}"
        )
        remedy = "raise it: docker run --pids-limit, the kubelet's podPidsLimit, or ulimit -u"
        findings.append(
            at_least("limits.pids", seen.pids_free, seen.pids_need, "tasks", Miss(cause, remedy))
        )
    if seen.memlock_gib is not None and seen.pinned_need_gib > 0:
        cause = "memory that RDMA or mlock pins counts against this; CUDA's own pinning does not"
        miss = Miss(cause, "docker run --ulimit memlock=-1 if RDMA is used", outcome=Outcome.WARN)
        findings.append(
            at_least("limits.memlock", seen.memlock_gib, seen.pinned_need_gib, "GiB", miss)
        )
    lent = seen.guaranteed_cpus is not None and seen.guaranteed_cpus < seen.effective_cpus
    if lent and seen.guaranteed_cpus is not None and seen.bound_cpus is None:
        cause = f"only {seen.guaranteed_cpus:g} CPUs are requested: the rest is lent by neighbours"
        fit = max(1, int(seen.guaranteed_cpus))
        remedy = f"request {seen.planned_workers} CPUs, or plan {fit} workers"
        miss = Miss(cause, remedy, outcome=Outcome.WARN)
        findings.append(
            at_least("limits.cpu_weight", seen.guaranteed_cpus, seen.planned_workers, "CPUs", miss)
        )
    if seen.container is not None:
        findings.append(_user(seen))
        if seen.data is not None:
            findings.append(_data_mount(seen))
    return findings


def _workers(seen: LimitsReading, limits: LimitsLimits) -> Finding:
    id, unit, most = "limits.workers_per_cpu", "workers per CPU", limits.max_workers_per_cpu
    workers, cpus = seen.planned_workers, seen.effective_cpus
    ratio = round(workers / cpus, 3)
    cause = (
        f"{workers} loader workers share {cpus:g} CPUs "
        f"({seen.cpus_from}, on a node with {seen.online_cpus})"
    )
    limit, outcome = (most, Outcome.FAIL) if ratio > most else (1.0, Outcome.WARN)
    need, fit = math.ceil(workers / limit), max(1, int(cpus * limit))
    give = f"give the container {need} CPUs"
    if seen.bound_cpus is not None:
        cause += ": without a quota, neighbours lend it more, and take it back when they need it"
        give = f"request {need} CPUs (resources.requests.cpu)"
    remedy = f"{give} or set loader.num_workers to {fit}"
    miss = Miss(cause, remedy, outcome=outcome)
    if workers == 1:  # one has to run, even where less than one CPU is given
        return holds(id, True, ratio, miss, unit)
    source = limits.source("max_workers_per_cpu") if outcome is Outcome.FAIL else None
    return at_most(id, ratio, limit, unit, miss, source=source)


def _memory(seen: LimitsReading, limits: LimitsLimits) -> Finding:
    cause = f"{seen.memory_headroom_gib:.2f} GiB can still be allocated ({seen.memory_from})"
    need = limits.min_memory_headroom_gib
    seen_gib = round(seen.memory_headroom_gib, 3)
    more = more_memory(need - seen_gib)
    source = limits.source("min_memory_headroom_gib")
    miss = Miss(cause, f"end what fills it, or {more}")
    return at_least("limits.memory_headroom", seen_gib, need, "GiB", miss, source=source)


def _user(seen: LimitsReading) -> Finding:
    cause = (
        f"root (UID 0) in a {seen.container} container may change all that is mounted into it, and "
        "what it writes there belongs to root"
    )
    remedy = (
        "run as another user: docker run --user 10001:10001; Compose: user; Kubernetes: "
        "securityContext with runAsNonRoot: true and runAsUser: 10001"
    )
    miss = Miss(cause, remedy, outcome=Outcome.WARN)
    return holds("limits.user", not seen.root, "root" if seen.root else "not root", miss)


def _data_mount(seen: LimitsReading) -> Finding:
    at = seen.data_writable_at
    cause = (
        f"the data, mounted at {at}, may be written to: a gate and a training job only read them, "
        "and a mistake in either would change them for everyone"
    )
    remedy = (
        f"mount them read-only: docker run -v ...:{at}:ro; Compose: read_only: true; Kubernetes: "
        "readOnly: true in volumeMounts"
    )
    miss = Miss(cause, remedy, outcome=Outcome.WARN)
    observed = "writable" if at else "read-only"
    return holds("limits.data_mount", at is None, observed, miss, subject=seen.data)
