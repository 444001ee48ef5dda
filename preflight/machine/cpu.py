"""How much CPU we may use (quota, affinity, weight, request) and how often the quota stopped us.

`nproc`, os.cpu_count and the affinity mask know nothing of a quota; a quota says nothing of a
cpuset. Both are read here. A quota of an ancestor that a container cannot see is not found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import Field

from preflight.facts import Cpu, Fact
from preflight.machine.cgroup import Cgroups, read_cgroups
from preflight.machine.kernel_text import cpu_list, integer, keyed, number
from preflight.machine.root import Root

_DEFAULT_PERIOD_US = 100_000  # cgroup-v2.rst, cpu.max
REQUEST_VARIABLE = "PREFLIGHT_CPU_REQUEST"
_REQUEST = re.compile(r"(\d+\.?\d*|\.\d+)(m?)", re.ASCII)
_CPU_LINE = re.compile(r"^cpu\d+ ", re.MULTILINE)
_STEAL = 7  # /proc/stat: user nice system idle iowait irq softirq steal


class Quota(NamedTuple):
    """A CFS bandwidth limit and the cgroup directory it was read from."""

    cpus: float
    period_s: float
    folder: str


class Request(NamedTuple):
    """PREFLIGHT_CPU_REQUEST as understood."""

    cpus: float | None
    ignored: str | None
    """Why it is not counted, where it is set."""


class Throttling(Fact):
    """How often the quota stopped our cgroup, since the cgroup was made: read twice, subtract."""

    nr_periods: int = Field(description="periods in which anything ran")
    nr_throttled: int = Field(description="of those, periods in which the quota ran out")
    throttled_s: float = Field(description="summed over CPUs, so it may pass the wall clock")


def read_cpu(root: Root, cgroups: Cgroups, environ: Mapping[str, str]) -> Cpu:
    """The CPU facts. `effective` is min(affinity, quota), in CPUs; without a quota the request.

    A request alone lets the pod use what its neighbours leave idle, and promises no more than
    itself. Only whole CPUs can be bound to: a fraction is rounded up, which fails no good node.
    """
    affinity = len(root.affinity())
    stat = root.read_text("/proc/stat")
    online = (
        len(cpu_list(root.read_text("/sys/devices/system/cpu/online")))
        or len(_CPU_LINE.findall(stat or ""))
        or affinity
    )
    quota = lowest_quota(root, cgroups)
    request = read_request(environ.get(REQUEST_VARIABLE), online)
    bound_to = None
    if quota is None and request.cpus is not None and math.ceil(request.cpus) < affinity:
        bound_to = math.ceil(request.cpus)
    if bound_to:
        binding = REQUEST_VARIABLE
    elif quota and quota.cpus < affinity:
        hierarchy = cgroups.by_controller["cpu"]
        name = hierarchy.file_name("cpu.cfs_quota_us", "cpu.max")
        binding = f"cgroup v{hierarchy.version} {name}"
    else:
        binding = "affinity" if affinity < online else "online CPUs"
    return Cpu(
        online=online,
        affinity=affinity,
        quota=quota.cpus if quota else None,
        effective=bound_to or (min(affinity, quota.cpus) if quota else affinity),
        from_=binding,
        period_s=quota.period_s if quota else None,
        weight=_weight(root, cgroups),
        request=request.cpus,
        request_ignored=request.ignored,
        bound_to=bound_to,
        steal_percent=steal_percent(stat),
        load_1m=number((root.read_text("/proc/loadavg") or "").partition(" ")[0]),
    )


def lowest_quota(root: Root, cgroups: Cgroups) -> Quota | None:
    """The lowest quota of our cgroup and its visible ancestors; the nearest of equal ones."""
    hierarchy = cgroups.get("cpu")
    if hierarchy is None:
        return None
    quotas = []
    for folder, text in hierarchy.read(root, "cpu.cfs_quota_us", "cpu.max"):
        period = root.read_text(f"{folder}/cpu.cfs_period_us") if hierarchy.version == 1 else ""
        parsed = parse_quota(f"{text} {period}")
        if parsed:
            quotas.append(Quota(*parsed, folder))
    return min(quotas, key=lambda quota: quota.cpus, default=None)


def parse_quota(text: str) -> tuple[float, float] | None:
    """(CPUs, period in seconds) of "quota period" in microseconds; None for "max" and -1."""
    words = text.split()
    quota_us = integer(words[0]) if words else None
    period_us = integer(words[1]) if len(words) > 1 else _DEFAULT_PERIOD_US
    if not quota_us or not period_us or quota_us < 0 or period_us < 0:
        return None
    return quota_us / period_us, period_us / 1e6


def throttling(root: Root) -> Throttling | None:
    """The counters of the cgroup whose quota binds, else of our own; None where there are none."""
    cgroups = read_cgroups(root)
    hierarchy = cgroups.get("cpu")
    if hierarchy is None:
        return None
    quota = lowest_quota(root, cgroups)
    folder = quota.folder if quota else hierarchy.dirs[0]
    return parse_throttling(root.read_text(f"{folder}/cpu.stat"))


def parse_throttling(cpu_stat: str | None) -> Throttling | None:
    """cpu.stat of v2 (throttled_usec) or v1 (throttled_time, ns)."""
    values = keyed(cpu_stat)
    periods, throttled = values.get("nr_periods"), values.get("nr_throttled")
    if "throttled_usec" in values:
        seconds = values["throttled_usec"] / 1e6
    elif "throttled_time" in values:
        seconds = values["throttled_time"] / 1e9
    else:
        return None
    if periods is None or throttled is None:
        return None
    return Throttling(nr_periods=periods, nr_throttled=throttled, throttled_s=seconds)


def weight_from_shares(shares: int) -> int:
    """The cgroup v2 cpu.weight that v1 cpu.shares stand for.

    Kubernetes' conversion since runc 1.3.2 and crun 1.23 (Kubernetes blog, "New conversion from
    cgroup v1 CPU shares to v2 CPU weight"): ceil(10^(L^2/612 + 125 L/612 - 7/34)) with
    L = log2(shares), which keeps 1024 (the default) at 100 (the default). The older one,
    1 + (shares - 2) x 9999 / 262142, would give an ordinary v1 container a low weight of 39.
    """
    level = math.log2(min(max(shares, 2), 262144))
    # Over one denominator, so that the three fixed points come out exact and are not rounded up.
    return math.ceil(10 ** ((level * level + 125 * level - 126) / 612))


def parse_request(text: str | None) -> float | None:
    """CPUs of a Kubernetes quantity such as "2", "0.5" or "500m"; None for anything else.

    Zero is what the downward API gives to a container without a request.
    """
    match = _REQUEST.fullmatch((text or "").strip())
    value = number(match[1]) if match else None
    if not match or not value:
        return None
    return value / 1000 if match[2] else value


def read_request(text: str | None, online: int) -> Request:
    """The request, or why it is not counted; both None where none is set or it is zero.

    With `divisor: 1m` the downward API gives 2500 for 2.5 CPUs; no node grants more CPUs than it
    has, so that is told from a request of 2500 CPUs.
    """
    words = (text or "").strip()
    cpus = parse_request(words)
    seen = f"{REQUEST_VARIABLE}={words[:20]!r} is ignored"
    if cpus is None and words and number(words.removesuffix("m")) != 0:
        return Request(None, f"{seen}: write CPUs, such as 2, 0.5 or 2500m")
    if cpus is not None and cpus > online:
        why = f"this node has {online} CPUs; if it counts thousandths, take out `divisor: 1m`"
        return Request(None, f"{seen}: {why}")
    return Request(cpus, None)


def core_mates(root: Root, cpus: Iterable[int]) -> dict[int, frozenset[int]]:
    """By CPU: those that share its core, itself among them; alone where the kernel hides it."""
    folder = "/sys/devices/system/cpu"
    return {
        cpu: cpu_list(root.read_text(f"{folder}/cpu{cpu}/topology/thread_siblings_list")) | {cpu}
        for cpu in cpus
    }


def steal_percent(stat: str | None) -> float | None:
    """Share of all CPU time since boot that the hypervisor gave to others; None when hidden."""
    words = (stat or "").partition("\n")[0].split()
    times = [integer(word) for word in words[1 : _STEAL + 2]]
    counted = [time for time in times if time is not None and time >= 0]
    if words[:1] != ["cpu"] or len(counted) != _STEAL + 1 or not sum(counted):
        return None
    return round(100 * counted[_STEAL] / sum(counted), 2)


def _weight(root: Root, cgroups: Cgroups) -> int | None:
    """Our own cgroup's weight against its siblings; an ancestor's is another contest."""
    hierarchy = cgroups.get("cpu")
    if hierarchy is None:
        return None
    name = hierarchy.file_name("cpu.shares", "cpu.weight")
    value = integer(root.read_text(f"{hierarchy.dirs[0]}/{name}"))
    if value is None or hierarchy.version == 2:
        return value
    return weight_from_shares(value)
