"""More CPUs, more or fewer workers: the remedies that are arithmetic. Pure."""

from __future__ import annotations

import math

from preflight.checks.dataloader.case import Case
from preflight.checks.dataloader.reading import DataloaderReading

FULL = 0.95
_FARTHEST = 4.0  # times the workers: nobody has seen what more of them do


def cpus(case: Case) -> str:
    """CPUs needed, by the rate that the loader gave with those it has, and workers for them."""
    return _cpus(case, case.cpus) + _workers_for(case)


def workers(case: Case) -> str:
    """Workers for the CPUs that are idle, and CPUs where these would not be enough."""
    count = math.ceil(case.cpus / case.seen.ranks)
    enough = case.rate * case.cpus / case.workers >= case.seen.limit_samples_per_s
    return _set(case, "set", count, enough)


def hide(case: Case) -> str:
    """Workers that wait: as many times more as the rate has to be, as far as the CPUs go."""
    times = max(1.0, case.needed / case.rate) if case.rate else 2.0
    how = "set"
    if case.scaling is None:
        times, how = min(times, _FARTHEST), "try to set"
    count = math.ceil(max(1, case.seen.num_workers) * times)
    return _set(case, how, count, enough=case.own * times <= FULL)


def try_more(case: Case) -> str:
    """Where nobody has tried."""
    return (
        f"try {_key(case)}={2 * max(1, case.seen.num_workers)}: if the rate stays, the server or "
        "the network to it is the limit"
    )


def fewer_workers(case: Case) -> str:
    """As many as were faster; fewer, where that is not enough and nobody tried fewer."""
    best = case.fewer
    if best is None:
        return f"set {_key(case)} to 1"
    fewest = min(trial.num_workers for trial in case.trials)
    missing = best.samples_per_s.value < case.seen.limit_samples_per_s
    or_fewer = " or fewer" if missing and best.num_workers == fewest > 1 else ""
    return f"set {_key(case)} to {best.num_workers}{or_fewer}"


def _set(case: Case, how: str, count: int, enough: bool) -> str:
    """The best number that was tried, else `count`; and CPUs where that is not enough."""
    best = case.seen.recommended
    if best is not None and best.num_workers > case.seen.num_workers:
        count, how = best.num_workers, "set"
        enough = best.samples_per_s.value >= case.seen.limit_samples_per_s
    set_workers = f"{how} {_key(case)} to {count}" if count > case.seen.num_workers else ""
    more_cpus = "" if enough and set_workers else _cpus(case, case.own * case.cpus)
    crowd = crowded(case.seen, count) if set_workers and not more_cpus else ""
    return " and ".join(filter(None, (set_workers, more_cpus))) + crowd


def crowded(seen: DataloaderReading, num_workers: int) -> str:
    """What `limits` has to be told where so many workers a rank are more than it has CPUs."""
    each = seen.ranks * num_workers / seen.effective_cpus
    if each <= 1:
        return ""
    return f"; limits.max_workers_per_cpu has to be at least {each:.3g} for that"


def _key(case: Case) -> str:
    theirs = case.seen.dataset_kind == "dataloader"
    return "num_workers of its DataLoader" if theirs else "loader.num_workers"


def _exact(case: Case, had: float) -> float:
    return case.needed / case.rate * had if case.rate else 0.0


def _workers_for(case: Case) -> str:
    each = math.ceil(_exact(case, case.cpus) / case.seen.ranks)
    return f" and set {_key(case)} to {each}" if each > max(1, case.seen.num_workers) else ""


def _cpus(case: Case, had: float) -> str:
    seen, exact = case.seen, _exact(case, had)
    if exact <= 0:
        return "give the container more CPUs"
    count = math.ceil(exact)
    sum_ = f"{case.needed:,.0f} / {case.rate:,.1f} x {had:.3g} = {exact:.1f}"
    if seen.bound_cpus is not None:
        return f"request {count} CPUs ({sum_})"
    if seen.node_cpus is not None and count > seen.node_cpus:
        return f"run on a node with at least {count} CPUs ({sum_}; this one has {seen.node_cpus})"
    if seen.quota_cpus is not None:
        node = "" if seen.node_cpus is None else f" on a {seen.node_cpus}-CPU node"
        quota = f"it has a quota of {seen.quota_cpus:g}{node}"
        return f"give the container at least {count} CPUs ({quota}; {sum_})"
    return f"give the container {count} CPUs ({sum_})"
