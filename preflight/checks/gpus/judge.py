"""GPUs seen in, findings out. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight.checks.gpus.reading import SHARING, GpusLimits, GpusReading
from preflight.diagnosis import nvml_codes
from preflight.diagnosis.cuda_circumstances import A_SLICE
from preflight.gpu_facts import Gpu
from preflight.judge import Miss, at_least, at_most, holds
from preflight.model import Finding
from preflight.outcome import Blame, Outcome


def judge(readings: Sequence[GpusReading], limits: GpusLimits) -> list[Finding]:
    """Count, models, and each GPU by itself."""
    seen = readings[0]
    if not seen.nvml:
        return [_unknown("gpus.count", None, "NVML does not list the GPUs of this system")]
    count = len(seen.usable)
    findings = [
        at_least(
            "gpus.count", count, limits.min_count, "GPUs", _too_few(seen, limits),
            source=limits.source("min_count"),
        )
    ]  # fmt: skip
    mine = [gpu for gpu in seen.gpus if gpu.subject in seen.mine]
    for gpu in seen.gpus:
        findings += _lost(gpu) if gpu.error is not None else []
    for gpu in mine:
        findings += _one(gpu, seen, limits)
    models = sorted({gpu.name or "without a name" for gpu in mine})
    mixed = Miss(
        f"the GPUs are of {len(models)} models ({', '.join(models)}): each is judged by its link, "
        "and a job that treats them alike waits for the slowest",
        "give the job GPUs of one model, or name the one to judge by with --gpu NAME",
        outcome=Outcome.WARN,
    )
    if models:
        findings.append(holds("gpus.mixed_models", len(models) == 1, ", ".join(models), mixed))
    return findings


def _blame_of_loss(gpu: Gpu) -> Blame:
    """Of a GPU that does not answer at all the node, else as the code has it."""
    return Blame.NODE if gpu.error_code is None else nvml_codes.explain(gpu.error_code).blame


def _lost(gpu: Gpu) -> list[Finding]:
    where = f" ({gpu.pci_bus_id})" if gpu.pci_bus_id else ""
    known = nvml_codes.explain(gpu.error_code) if gpu.error_code is not None else None
    lost = Miss(
        f"{gpu.subject}{where} does not answer NVML: {gpu.error}"
        + (f": {known.cause}" if known else ""),
        known.remedy if known else "look for Xid lines in the host's dmesg, then reset or reboot",
        _blame_of_loss(gpu),
    )
    return [holds("gpus.lost", False, None, lost, subject=gpu.subject)]


def _one(gpu: Gpu, seen: GpusReading, limits: GpusLimits) -> list[Finding]:
    findings = [
        Finding(id="gpus.lost", outcome=Outcome.PASS, subject=gpu.subject, observed=gpu.uuid)
    ]
    if limits.name is not None:
        other = Miss(
            f"{gpu.subject} is a {gpu.name}, and {limits.name} is expected",
            "correct gpus.name, or send the job to nodes with that model",
        )
        fits = re.fullmatch(limits.name, gpu.name or "") is not None
        findings.append(holds("gpus.name", fits, gpu.name, other, subject=gpu.subject))
    return [*findings, _compute_mode(gpu), *_mig(gpu), _foreign(gpu, seen, limits)]


def _compute_mode(gpu: Gpu) -> Finding:
    if gpu.compute_mode is None:
        return _unknown("gpus.compute_mode", gpu, "NVML does not tell the compute mode")
    prohibited = Miss(
        f"compute mode of {gpu.subject} is prohibited: no process may use CUDA on it",
        f"on the host: nvidia-smi -i {gpu.uuid} -c DEFAULT",
        Blame.NODE,
    )
    ok = gpu.compute_mode != "prohibited"
    return holds("gpus.compute_mode", ok, gpu.compute_mode, prohibited, subject=gpu.subject)


def _mig(gpu: Gpu) -> list[Finding]:
    if not gpu.mig:
        return []
    empty = Miss(
        f"MIG is on for {gpu.subject}, and no instance of it is ours: CUDA has nothing to run on",
        A_SLICE,
    )
    slices = len(gpu.mig_slices)
    return [holds("gpus.mig", slices > 0, slices, empty, "slices", gpu.subject)]


def _foreign(gpu: Gpu, seen: GpusReading, limits: GpusLimits) -> Finding:
    id, used, pids = "gpus.foreign_processes", gpu.memory_used_gib, gpu.processes
    if gpu.mig:
        cause = "a MIG slice is one's own; the card's other slices may be in use"
        return _unknown(id, gpu, cause)
    if pids is None and used is None:
        return _unknown(id, gpu, "NVML tells neither processes nor memory in use")
    busy = Miss("", f"stop them or wait for their end, {SHARING}", Blame.SHARED, Outcome.ERROR)
    if seen.gpu_sharing == "shared":
        return holds(id, True, len(pids or ()), busy, "processes", gpu.subject)
    if pids:
        shown = ", ".join(map(str, pids[:5]))
        cause = f"processes {shown} hold {gpu.subject} ({used or 0:.1f} GiB in use)"
        miss = Miss(cause, busy.remedy, busy.blame, busy.outcome)
        return at_most(id, len(pids), 0, "processes", miss, subject=gpu.subject)
    cause = (
        f"{used or 0:.1f} GiB of {gpu.subject} are in use, by processes that cannot be seen from "
        "here: a measurement beside them says nothing of the node"
    )
    miss = Miss(cause, busy.remedy, busy.blame, busy.outcome)
    return at_most(
        id, round(used or 0, 2), limits.max_foreign_memory_gib, "GiB", miss, subject=gpu.subject
    )


def _too_few(seen: GpusReading, limits: GpusLimits) -> Miss:
    count, want = len(seen.usable), limits.min_count
    ask = f"docker run --gpus all; Kubernetes: nvidia.com/gpu: {want}; Slurm: --gres=gpu:{want}"
    lost = [gpu for gpu in seen.gpus if gpu.error is not None]
    if lost:
        names = ", ".join(gpu.subject for gpu in lost)
        cause = f"{count} GPUs can be used; {names} cannot: see gpus.lost"
        blames = {_blame_of_loss(gpu) for gpu in lost}
        blame = Blame.NODE if Blame.NODE in blames else Blame.SETUP
        return Miss(cause, "mend them, or set gpus.min_count to what is left", blame)
    if count < len(seen.gpus) and seen.cuda_visible_devices is not None:
        cause = (
            f"CUDA_VISIBLE_DEVICES={seen.cuda_visible_devices!r} leaves {count} of the "
            f"{len(seen.gpus)} GPUs that NVML shows"
        )
        return Miss(cause, "unset it, or set gpus.min_count to what this job is given")
    if seen.forbidden:
        all_of = len(seen.gpus) + seen.forbidden
        cause = f"{len(seen.gpus)} of {all_of} GPUs were given to us; NVML may not open the others"
        return Miss(cause, f"ask for {want} ({ask}), or set gpus.min_count")
    if seen.gpu_nodes > len(seen.gpus):
        cause = f"{seen.gpu_nodes} GPUs have a device node here, and NVML lists {len(seen.gpus)}"
        return Miss(cause, "look for Xid 79 in the host's dmesg, then reboot the node", Blame.NODE)
    if seen.node == "shared":
        cause = f"{count} of the node's {seen.pci_gpus} GPUs were given to this container"
        return Miss(cause, f"ask for {want} ({ask}), or set gpus.min_count")
    if seen.pci_gpus == len(seen.gpus) and not any(gpu.mig for gpu in seen.gpus):
        cause = f"the PCI bus itself shows {count}: a GPU fell off, or there never were {want}"
        remedy = "look for Xid 79 in the host's dmesg and reboot, or correct gpus.min_count"
        return Miss(cause, remedy, Blame.UNKNOWN)
    return Miss(f"CUDA can use {count} GPUs here", f"ask for {want} ({ask}), or set gpus.min_count")


def _unknown(id: str, gpu: Gpu | None, cause: str) -> Finding:
    subject = gpu.subject if gpu else None
    return Finding(id=id, outcome=Outcome.SKIP, subject=subject, cause=cause)
