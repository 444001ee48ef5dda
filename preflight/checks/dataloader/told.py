"""The sentences of the table of causes: what was seen, in a tired operator's words. Pure."""

from __future__ import annotations

from preflight.checks.dataloader import signs
from preflight.checks.dataloader.case import Case
from preflight.checks.dataloader.evidence import Trial


def used_quota(case: Case) -> str:
    """All of a CFS quota."""
    quota = case.seen.quota_cpus or case.cpus
    return f"{_who(case)} used all of the {quota:g}-CPU quota{_corrected(case)}"


def used_cpus(case: Case) -> str:
    """All CPUs, and what for, where one part of the work is the larger one."""
    which = "they may run on" if case.seen.bound_cpus is None else "that the pod requests"
    return f"{_who(case)} used all {case.cpus:g} CPUs {which}{_corrected(case)}{_line(case)}"


def few(case: Case) -> str:
    """Workers with nothing to wait for, and CPUs without work."""
    return f"{case.workers} workers used {case.own:.0%} of {case.cpus:g} CPUs{_corrected(case)}"


def others_used(case: Case) -> str:
    """Neighbours on the CPUs that are ours as well."""
    return f"others used {case.others:.0%} of the CPUs while the loader ran"


def light(case: Case) -> str:
    """The same, where our cgroup gives way to theirs."""
    weight = case.seen.evidence.cpu_weight if case.seen.evidence else None
    return f"{others_used(case)}, and this container gives way: its CPU weight is {weight}, not 100"


def stolen(case: Case) -> str:
    """A hypervisor that gave our CPUs to other guests."""
    return f"the hypervisor gave {case.steal:.0%} of the CPUs to other guests"


def crowded(case: Case) -> str:
    """Fewer workers are faster."""
    gave = "" if case.fewer is None else f": {case.fewer.num_workers} gave {_rate(case.fewer)}"
    return f"{case.workers} workers stand in each other's way on {case.cpus:g} CPUs{gave}"


def tiny(case: Case) -> str:
    """Queues between processes, not the samples."""
    return f"{case.rate:,.0f} samples/s is what handing over small samples one by one allows"


def collates(case: Case) -> str:
    """Copying samples into batches in /dev/shm, by collate or by the thread that sends them."""
    part, rest = f"{case.helpers:.0%}", "CPU time went into sending batches to the main process"
    if not signs.sends(case):
        part, rest = f"{case.share('collate_share'):.0%}", "time went into collate, in /dev/shm"
    return f"{part} of the workers' {rest}{_corrected(case)}"


def threads(case: Case) -> str:
    """Threads that the data set starts."""
    return (
        f"{case.helpers:.0%} of the workers' CPU time went to threads that the data set starts, "
        f"of {case.workers} workers on {case.cpus:g} CPUs{_line(case)}"
    )


def waits_for_work(case: Case) -> str:
    """The process that takes the batches."""
    return (
        f"the workers had nothing to do {case.between:.0%} of the time: the process that takes "
        f"the batches is the limit (it used {case.share('main_cpu_share'):.0%} of a CPU)"
    )


def pins(case: Case) -> str:
    """The same, with a thread that pins."""
    return f"{waits_for_work(case)}, and one thread of it copies every batch to pinned memory"


def locked(case: Case) -> str:
    """A lock that one worker holds at a time."""
    waited = f"the workers waited {case.waits['lock']:.0%} of their time for a lock{_line(case)}"
    return f"{waited}: one of them works at a time{_tried(case)}"


def reads(case: Case) -> str:
    """A disk."""
    size = case.share("disk_bytes_per_sample")
    kb = f", {size / 1000:,.0f} kB of each sample off a disk" if size else ""
    return f"{_read_waits(case)}{kb}{_tried(case)}"


def reads_elsewhere(case: Case) -> str:
    """A file server, or a process that stands for one."""
    on = case.seen.data_on
    where = "" if on is None else f" ({on.fs_type} at {on.point})"
    return (
        f"{_read_waits(case)} that no disk of this node served: a network file system or "
        f"FUSE{where}{_tried(case)}"
    )


def asks(case: Case) -> str:
    """A server behind a socket."""
    waited = f"the workers waited {case.waits['network']:.0%} of their time for a server"
    return f"{waited}{_line(case)}; {_helps(case)}"


def sleeps(case: Case) -> str:
    """A wait that is neither a disk nor a server."""
    share = case.waits[case.longest_wait]
    how = "asleep" if case.wait("sleep") >= share / 2 else "waiting in the data set"
    return f"the workers were {how} {share:.0%} of their time{_line(case)}; {_helps(case)}"


def rank_alone(case: Case) -> str:
    """One rank that falls behind."""
    gave = f"rank {case.seen.rank} gave {case.rate:,.0f} samples/s where the others gave"
    return f"{gave} {case.other_ranks:,.0f}; {what_was_seen(case)}"


def what_was_seen(case: Case) -> str:
    """The evidence itself, where it points nowhere."""
    used = f"the workers waited: they used only {case.own:.0%} of {case.cpus:g} CPUs"
    parts = {
        "in the data set": case.share("getitem_share"),
        "in collate": case.share("collate_share"),
        "with nothing to do": case.between,
    }
    waits = {"reads": "disk", "sockets": "network", "locks": "lock", "sleep": "idle"}
    parts |= {f"waiting in it for {name}": case.waits[group] for name, group in waits.items()}
    seen = ", ".join(f"{share:.0%} {name}" for name, share in parts.items() if share >= 0.05)
    return f"{used}{_corrected(case)}" + (f" ({seen})" if seen else "") + _tried(case)


def _who(case: Case) -> str:
    ranks = case.seen.ranks
    return "the loader workers" + (f" of {ranks} ranks" if ranks > 1 else "")


def _corrected(case: Case) -> str:
    shown = case.others >= case.seen.max_disturbance
    return f" (others' {case.others:.0%} left out)" if shown else ""


def _line(case: Case) -> str:
    line = case.seen.evidence.slow_line if case.seen.evidence else None
    return f", most often in {line}" if line else ""


def _read_waits(case: Case) -> str:
    faults = case.share("major_faults_per_s")
    touched = f" ({faults:,.0f} page faults/s)" if faults >= 1000 else ""
    return f"the workers waited {case.waits['disk']:.0%} of their time for reads{touched}"


def _rate(trial: Trial) -> str:
    return f"{trial.samples_per_s.value:,.0f}/s"


def _tried(case: Case) -> str:
    return "" if case.more is None else f"; {case.more.num_workers} workers gave {_rate(case.more)}"


def _helps(case: Case) -> str:
    if case.scaling is None:
        return "whether more workers would hide that was not tried"
    little = "do not hide that" if signs.does_not(case) else "help a little"
    how = "hide that" if signs.scales(case) else little
    return f"more workers {how}{_tried(case).replace('; ', ': ')}"
