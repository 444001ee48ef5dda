"""Why a copy was slow, as far as the reading tells, what to do next, and who has to. Pure.

The node is blamed only where nothing else is left: host memory near the GPU, nobody else about,
and a link that runs at all that GPU and slot can do.
"""

from __future__ import annotations

from preflight.checks.pinned_copy.link import is_reduced_under_load, name
from preflight.checks.pinned_copy.reading import PinnedCopyReading
from preflight.judge import Miss
from preflight.outcome import Blame, Outcome

_NEAR_CPUS = (
    "give the container CPUs of NUMA node {node} (docker run --cpuset-cpus with "
    "`lscpu | grep 'NUMA node{node}'`; Slurm: --gres-flags=enforce-binding; Kubernetes: the "
    "kubelet's topologyManagerPolicy single-numa-node)"
)
_LOOK_AT_THE_NODE = (
    "look for PCIe errors (AER) in the host's dmesg and for replays in `nvidia-smi -q -d PCIE`, "
    "compare the BIOS with a good node's (relaxed ordering, IOMMU, NUMA per socket, PCIe slot "
    "speed), and take the node out of service if it stays slow"
)
_LOOK_AT_THE_LINK = (
    "reseat the GPU or its riser, set the slot to its full speed in the BIOS, look for PCIe errors "
    "(AER) in the host's dmesg, and compare with a good node of the same kind"
)


def of_slow(seen: PinnedCopyReading, under: str, outcome: Outcome) -> Miss:
    """A copy under a limit; `under` says in words which."""
    why, remedy, blame = _of_slow(seen)
    return Miss(f"{under}; {why}", remedy, blame, outcome)


def _of_slow(seen: PinnedCopyReading) -> tuple[str, str, Blame]:
    if seen.host_memory == "far":
        why = (
            "host memory is on another NUMA node than the GPU: allowed CPUs "
            f"{seen.allowed_cpus}, GPU on node {seen.gpu_numa_node}"
        )
        return why, _NEAR_CPUS.format(node=seen.gpu_numa_node), Blame.SETUP
    if seen.no_link_verdict is not None:
        remedy = "compare with a good node of the same kind before changing anything"
        return seen.no_link_verdict, remedy, Blame.UNKNOWN
    if seen.alone is False:
        why = "others use this GPU, or other GPUs of the node, and may have copied at the same time"
        return why, "repeat while the node is otherwise idle", Blame.SHARED
    if is_reduced_under_load(seen) and seen.link is not None:
        full = name(seen.link.max_gen, seen.link.max_width)
        why = f"the link ran below the {full} that GPU and slot can do"
        return why, _LOOK_AT_THE_LINK, Blame.UNKNOWN
    unknown = [
        text
        for text, open_question in (
            ("which NUMA node host memory is on", seen.host_memory == "unknown"),
            ("whether others use the node's GPUs", seen.alone is None),
            ("the link during the copy", seen.link_seen != "during the copy"),
            ("what link GPU and slot could have", _unknown_best(seen)),
        )
        if open_question
    ]
    if unknown:
        why = f"the cause is open, since it is not known {' nor '.join(unknown)}"
        remedy = "repeat on the idle node, bound to the GPU's own CPUs (`nvidia-smi topo -m`)"
        return why, remedy, Blame.UNKNOWN
    why = "nothing else was on the GPUs, host memory is near, and the link ran at its full speed"
    return why + _slower_slot(seen), _LOOK_AT_THE_NODE, Blame.NODE


def _unknown_best(seen: PinnedCopyReading) -> bool:
    return seen.link is not None and None in (seen.link.max_gen, seen.link.max_width)


def of_reduced_link(seen: PinnedCopyReading, full_link_gives: float | None) -> Miss:
    """A link below what GPU and slot can do; one witness warns, two fail.

    `full_link_gives`: GB/s that a copy over the full link would reach at least; None: not known.
    """
    assert seen.link is not None
    link = seen.link
    seen_at = (
        f"the link stayed at {name(link.gen, link.width)} during the copy, though GPU and slot "
        f"reach {name(link.max_gen, link.max_width)}"
    )
    if full_link_gives is None:
        return Miss(seen_at, _LOOK_AT_THE_LINK, Blame.UNKNOWN, Outcome.WARN)
    if link.gen == link.max_gen and link.slot_width is None:
        doubt = "the slot's own width is not to be seen, and may be no more"
        return Miss(f"{seen_at}; {doubt}", _LOOK_AT_THE_LINK, Blame.UNKNOWN, Outcome.WARN)
    rates = (seen.h2d_gb_per_s, seen.d2h_gb_per_s)
    slow = all(rate is not None and rate.value < full_link_gives for rate in rates)
    if slow and seen.host_memory != "far" and seen.alone is not False:
        cause = (
            f"{seen_at}, and the copies bear it out: both are under the {full_link_gives:.4g} GB/s "
            "that the full link would give at least"
        )
        return Miss(cause, _LOOK_AT_THE_LINK, Blame.NODE, Outcome.FAIL)
    doubt = (
        "the copies are slow for another reason too, so they are no second witness"
        if slow
        else f"the copies reach the {full_link_gives:.4g} GB/s of a full link"
    )
    remedy = f"repeat on an idle node with near CPUs; if it stays: {_LOOK_AT_THE_LINK}"
    return Miss(f"{seen_at}; {doubt}", remedy, Blame.UNKNOWN, Outcome.WARN)


def of_no_gain(seen: PinnedCopyReading) -> Miss:
    """Page-locked memory that copies no faster than ordinary memory."""
    cause = "page-locked host memory should copy faster than pageable memory, and does not"
    if seen.host_memory == "far":
        why, remedy, blame = _of_slow(seen)
        return Miss(f"{cause}; {why}", remedy, blame, Outcome.WARN)
    remedy = (
        "look at what keeps the GPU from reading memory directly: an IOMMU in translating mode "
        "(boot with iommu=pt), a virtual machine without huge pages; pin_memory gains nothing here"
    )
    return Miss(cause, remedy, Blame.UNKNOWN, Outcome.WARN)


def _slower_slot(seen: PinnedCopyReading) -> str:
    return f", {text}" if (text := slower_slot(seen)) else ""


def slower_slot(seen: PinnedCopyReading) -> str:
    """That the slot or the host, and not the GPU, is the limit; empty where it is not."""
    link = seen.link
    if link is None or link.gpu_max_gen is None or link.max_gen is None:
        return ""
    if link.gpu_max_gen <= link.max_gen:
        return ""
    return f"though the slot or the host is the limit: the GPU alone could do Gen{link.gpu_max_gen}"
