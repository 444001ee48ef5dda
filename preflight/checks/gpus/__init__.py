"""gpus: are the expected GPUs there, answering, and ours alone?

Everything was read by the inventory (NVML and the PCI bus) before the run was planned; here it is
held against what the thresholds expect. Nothing is measured.
"""

from __future__ import annotations

from preflight.checks.contract import Check, Unit
from preflight.checks.gpus.judge import judge
from preflight.checks.gpus.reading import SHARING, GpusLimits, GpusReading
from preflight.facts import Facts
from preflight.gpu_facts import is_gpu_node


def observe(unit: Unit) -> GpusReading:
    """Pick the facts that count."""
    unit.ready()
    facts = unit.facts
    return GpusReading(
        gpus=facts.gpus,
        mine=_mine(facts),
        usable=tuple(device.subject for device in facts.cuda_devices()),
        cuda_visible_devices=facts.environment.get("CUDA_VISIBLE_DEVICES"),
        pci_gpus=len(facts.gpu_host.pci_gpus),
        forbidden=facts.nvml.forbidden if facts.nvml else 0,
        gpu_nodes=sum(map(is_gpu_node, facts.gpu_host.device_nodes)),
        node=facts.node,
        gpu_sharing=unit.job.gpu_sharing,
        nvml=facts.nvml is not None and facts.nvml.state == "ok",
    )


def _mine(facts: Facts) -> tuple[str, ...]:
    given = {device.gpu.subject for device in facts.cuda_devices()}
    hidden = facts.environment.get("CUDA_VISIBLE_DEVICES") is not None
    # One in MIG mode without a slice is no device, but is there to be told of.
    unsliced = {gpu.subject for gpu in facts.gpus if gpu.mig and not gpu.mig_slices and not hidden}
    return tuple(gpu.subject for gpu in facts.gpus if gpu.subject in given | unsliced)


CHECK = Check(
    id="gpus",
    title="GPU inventory",
    about=(
        "Holds the GPUs that NVML lists against the expected number and model, finds those that no "
        "longer answer, that MIG or the compute mode closes to a job, or that somebody else uses, "
        "and says whether the node's other GPUs were given to somebody else."
    ),
    limits=GpusLimits,
    reading=GpusReading,
    findings={
        "count": "ask for more GPUs, or set gpus.min_count to what a job here is given",
        "name": "correct gpus.name, or send the job to nodes with that model",
        "lost": "reset the GPU or reboot the node; drain it if the GPU is lost again",
        "compute_mode": "nvidia-smi -c DEFAULT on the host",
        "mig": "create MIG instances, or turn MIG off",
        "foreign_processes": f"stop the other processes, {SHARING}",
        "mixed_models": "give the job GPUs of one model",
    },
    observe=observe,
    judge=judge,
    needs=("driver_cuda",),
    gpu=True,
    isolate=False,
)
