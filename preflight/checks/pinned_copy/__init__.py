"""pinned_copy: how fast does each GPU copy from and to page-locked host memory?

The last link between loader and GPU. What it should carry is worked out from the PCIe link that is
negotiated during the copy. The measuring is in `preflight.measure.copies`.
"""

from __future__ import annotations

from preflight.checks.contract import Check, Unavailable, Unit
from preflight.checks.pinned_copy.judge import judge
from preflight.checks.pinned_copy.link import no_verdict
from preflight.checks.pinned_copy.reading import PinnedCopyLimits, PinnedCopyReading
from preflight.diagnosis.headroom import refusal
from preflight.facts import Facts
from preflight.gpu_facts import CudaDevice, Gpu
from preflight.measure.placement import HostMemory, Placement, move_near


def observe(unit: Unit) -> PinnedCopyReading:
    """Measure one GPU's copies, close to it where that is allowed."""
    device = unit.device()
    if device is None:
        raise Unavailable(
            "there is no device that CUDA may use; look at CUDA_VISIBLE_DEVICES and at what the "
            "checks driver_cuda and gpus say"
        )
    check_memory(unit.limits, unit.facts)
    unit.progress("importing torch")
    from preflight.checks.pinned_copy.copying import Copying
    from preflight.measure.device import load

    # Before torch is there: its threads touch the buffers, and stay where they are started.
    placement = move_near(unit.machine, device.gpu.numa_node)
    load()
    unit.ready()
    reading = PinnedCopyReading(
        subject=device.subject,
        no_link_verdict=no_verdict(device, unit.facts),
        host_memory=host_memory(placement, device.gpu),
        gpu_numa_node=device.gpu.numa_node,
        allowed_cpus=placement.allowed_cpus,
        alone=is_alone(device, unit.facts, shared=unit.job.gpu_sharing == "shared"),
    )
    return Copying(unit, device, reading).run()


def check_memory(limits: PinnedCopyLimits, facts: Facts) -> None:
    """Refuse to start what the kernel would have to kill: all wait with torch, one copies.

    Raises:
        Unavailable: with the arithmetic.
    """
    processes, pieces = len(facts.cuda_devices()), 2 * limits.piece_mib / 1024
    need = processes * limits.process_memory_gib + pieces
    what = (
        f"{processes} processes x {limits.process_memory_gib:g} GiB + {pieces:.2f} GiB of host "
        "buffers"
    )
    headroom_gib = facts.memory.headroom_gib
    if refused := refusal(what, need, limits.max_memory_share, headroom_gib):
        raise Unavailable(refused)


def host_memory(placement: Placement, gpu: Gpu) -> HostMemory:
    """Where the buffers will lie; a guest's NUMA nodes need not be the machine's."""
    hidden = gpu.virtualization == "passthrough" and placement.host_memory == "near"
    return "unknown" if hidden else placement.host_memory


def applies(facts: Facts, limits: PinnedCopyLimits) -> str | None:
    """Why there is nothing to copy to, where NVML was asked."""
    nothing = facts.nvml is not None and not facts.cuda_devices()
    return "NVML lists no GPU that CUDA may use" if nothing else None


def is_alone(device: CudaDevice, facts: Facts, *, shared: bool) -> bool | None:
    """Whether nobody else uses the node's GPUs; None where it is not told.

    `shared`: the thresholds allow others on the GPU, whose processes may be hidden from us.
    """
    if facts.node == "shared" or any(gpu.processes for gpu in facts.gpus):
        return False
    untold = device.gpu.processes is None or facts.node is None or shared
    return None if untold else True


CHECK = Check(
    id="pinned_copy",
    title="Copies to and from the GPU",
    about=(
        "Copies pieces of page-locked (pinned) memory to each GPU and back, one GPU after the "
        "other, with every byte compared once, and from pageable memory beside it. The median is "
        "held against what the PCIe link carries that was negotiated during the copy: an idle link "
        "may be slower. Host buffers are put on the GPU's own NUMA node where the allowed CPUs "
        "reach it. A result near a limit is measured a second time before it fails, and both looks "
        "count."
    ),
    limits=PinnedCopyLimits,
    reading=PinnedCopyReading,
    findings={
        "copied": "do what the CUDA error's cause says",
        "h2d_fraction": "give the container CPUs of the GPU's NUMA node; else look at the node",
        "d2h_fraction": "give the container CPUs of the GPU's NUMA node; else look at the node",
        "h2d_floor": "compare the node with a good one, or correct min_h2d_gb_per_s",
        "d2h_floor": "compare the node with a good one, or correct min_d2h_gb_per_s",
        "steady": "repeat on the idle node, then look for PCIe errors in the host's dmesg",
        "verified": "take the node out of service",
        "pageable_ratio": "look at the IOMMU and at the NUMA node of host memory",
        "link_below_capability": "reseat the GPU or its riser; set the slot's speed in the BIOS",
    },
    observe=observe,
    judge=judge,
    applies=applies,
    needs=("driver_cuda", "gpus"),
    fan_out="gpu",
    turns="one_by_one",
    gpu=True,
)
