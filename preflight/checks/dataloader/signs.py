"""Signs of a cause in one rank's evidence: the predicates that the table of causes is made of.

Pure. Shares are of the workers' wall time. The constants come from loaders of known kind on two
CPUs (shares); those for tiny samples, steal, slow ranks and weights are estimates.
"""

from __future__ import annotations

import math

from preflight.checks.dataloader.case import Case

ALL_OF_THE_CPUS = 0.95
THROTTLED_PERCENT = 10.0  # of the CFS periods: less is the odd burst, not the limit
_MOST = 0.5  # of the workers' time: then it is what limits
_MUCH = 0.2  # of it: less does not matter
_BUSY = 0.8
_SENDS = 0.3  # of a worker's time: the other end of its pipe is busy as well
_SCALES, _DOES_NOT = 1.6, 1.2  # S(2W) / S(W); 2 and 1 without noise
_FAR_SLOWER = 0.7  # than the other ranks: those of one node are within a few percent
_WORTH_FEWER = 1.1
_TINY_PER_S = 20_000  # of one rank: queues between processes take some 40 us a sample and more
_FAULTS_PER_S = 1000
_SECTOR_BYTES = 512
_STOLEN = 0.1
_USUAL_WEIGHT = 100  # cgroup-v2.rst: the default of cpu.weight


def disturbed(case: Case) -> bool:
    """What is missing may be what others took. A miss is one without them: they are taken off."""
    return not case.missed and case.others >= case.seen.max_disturbance


def light(case: Case) -> bool:
    """Our cgroup gives way to others."""
    weight = None if case.seen.evidence is None else case.seen.evidence.cpu_weight
    return weight is not None and weight < _USUAL_WEIGHT


def slow_rank(case: Case) -> bool:
    """The others reach what is needed."""
    others = case.other_ranks
    return others >= case.seen.limit_samples_per_s and 0 < case.rate < _FAR_SLOWER * others


def quota(case: Case) -> bool:
    """All of a CFS quota."""
    throttled = (case.seen.throttled_percent or 0.0) > THROTTLED_PERCENT
    return case.seen.quota_cpus is not None and (case.own >= ALL_OF_THE_CPUS or throttled)


def stolen(case: Case) -> bool:
    """By the hypervisor, and without that it would be enough or the CPUs are full."""
    if case.steal < _STOLEN or case.own + case.steal < ALL_OF_THE_CPUS:
        return False
    enough = case.rate / max(1 - case.steal, 0.01) >= case.seen.limit_samples_per_s
    return case.own < ALL_OF_THE_CPUS or enough


def cpu_bound(case: Case) -> bool:
    """No CPU is left, or no worker ever waits for anything else."""
    full = case.never_waits >= ALL_OF_THE_CPUS and case.workers >= case.cpus
    return case.own >= ALL_OF_THE_CPUS or full


def threads(case: Case) -> bool:
    """The loading thread waits for others of its process."""
    waits_for_them = (
        case.share("getitem_share") >= _MOST and case.share("getitem_cpu_share") < _MOST
    )
    return cpu_bound(case) and waits_for_them and case.helpers >= _MOST


def busy(case: Case) -> bool:
    """Each worker all the time, while CPUs are idle."""
    each = case.own * case.cpus / case.workers
    room = case.workers < math.floor(case.cpus)
    return each >= ALL_OF_THE_CPUS or (room and max(each, case.never_waits) >= _BUSY)


def waits_for(case: Case, group: str) -> bool:
    """It is the longest wait inside the data set, and long."""
    return case.longest_wait == group and case.waits[group] >= _MUCH


def reads(case: Case) -> bool:
    """From a file, by read(2) or by touching a map."""
    faults = case.share("major_faults_per_s") >= _FAULTS_PER_S
    return waits_for(case, "disk") or faults


def served_elsewhere(case: Case) -> bool:
    """No disk of this node gave the bytes."""
    seen, on = case.seen.evidence, case.seen.data_on
    if on is not None and on.kind == "network":
        return True
    known = None if seen is None else seen.disk_bytes_per_sample
    return known is not None and known < _SECTOR_BYTES


def scales(case: Case) -> bool:
    """Twice the workers, nearly twice the rate."""
    return case.scaling is not None and case.scaling >= _SCALES


def does_not(case: Case) -> bool:
    """Twice the workers, and little or nothing gained."""
    return case.scaling is not None and case.scaling <= _DOES_NOT


def lock(case: Case) -> bool:
    """Also beside a longer wait: the one that holds the lock may sleep or read meanwhile."""
    return case.workers > 1 and case.waits["lock"] >= _MUCH and not scales(case)


def remote(case: Case) -> bool:
    """A server behind a socket."""
    return waits_for(case, "network")


def latency(case: Case) -> bool:
    """A wait that is neither a disk nor a server, and that more workers hide, or nobody tried."""
    group = case.longest_wait
    hides = case.scaling is None or scales(case)
    return group in ("idle", "lock") and waits_for(case, group) and hides


def crowded(case: Case) -> bool:
    """Fewer workers were faster."""
    fewer, best = case.fewer, max(case.as_tried, case.rate)
    return fewer is not None and fewer.samples_per_s.value >= _WORTH_FEWER * best


def tiny(case: Case) -> bool:
    """As many samples as can be handed over."""
    return case.rate >= _TINY_PER_S


def collates(case: Case) -> bool:
    """Putting batches together takes most of the time, or sending them does."""
    return case.share("collate_share") >= _MOST or sends(case)


def sends(case: Case) -> bool:
    """What collate did not put into /dev/shm a thread of the worker copies meanwhile."""
    used = case.never_waits >= _SENDS
    return case.between >= _MOST and case.helpers >= _MOST and used


def idle_workers(case: Case) -> bool:
    """The workers are given too little to do."""
    return case.between >= _MOST


def room(case: Case) -> bool:
    """CPUs without a worker, where more workers are not known to be of no use."""
    return case.workers < math.floor(case.cpus) and not does_not(case)
