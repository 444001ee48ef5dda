"""What it means that a unit of work ended without a whole reading: Ended in, Finding out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.diagnosis.loader_failures import explain
from preflight.ended import Ended
from preflight.model import Finding
from preflight.outcome import Blame, Outcome

_CRASHES = {4, 6, 7, 8, 11}  # SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV: of native code


@dataclass(frozen=True)
class Circumstances:
    """What else is known of the unit."""

    check: str
    subject: str | None
    timeout_s: float
    gpu: bool
    """It was about a GPU: what hangs is the driver or the device."""
    cpus: float
    """That we may use: below one the driver may only be slow to start."""
    stopped_by: str | None
    oom_kills: int | None
    """Counted in the memory cgroup meanwhile; None where it is not told."""
    shm_gib: int
    more_memory_gib: int
    """What remedies suggest, whole GiB: a size of /dev/shm, and how much more memory."""


def finding(ended: Ended, around: Circumstances) -> Finding:
    """The finding `<check>.completed` of a unit that was cut off, died or raised."""
    outcome, cause, remedy, blame = _explain(ended, around)
    return Finding(
        id=f"{around.check}.completed",
        outcome=outcome,
        subject=around.subject,
        cause=cause,
        remedy=remedy,
        blame=blame,
    )


def _explain(ended: Ended, around: Circumstances) -> tuple[Outcome, str, str, Blame]:
    doing = f" (last: {ended.last_progress})" if ended.last_progress else ""
    if ended.kind == "unavailable":
        cause, _, remedy = ended.text.partition("; ")
        return Outcome.ERROR, cause, remedy or "do what the cause says", Blame.SETUP
    if ended.kind == "stopped":
        cause = f"stopped by {around.stopped_by}{doing}"
        return Outcome.ERROR, cause, "run the gate again", Blame.SETUP
    hung = ended.kind == "timeout" and ended.went and not ended.by_total
    if hung and around.gpu and around.cpus >= 1:
        return _gpu_hung(ended, around)
    if around.gpu and ended.exit_signal in _CRASHES:
        return _gpu_crashed(ended, around)
    if ended.abandoned_pid is not None:
        cause = (
            f"no answer in {ended.seconds:.0f} s{doing}, and process {ended.abandoned_pid} cannot "
            "be killed: it hangs in the kernel"
        )
        remedy = (
            f"read /proc/{ended.abandoned_pid}/stack and dmesg: a file system, a device or a "
            "frozen cgroup does not answer"
        )
        return Outcome.ERROR, cause, remedy, Blame.UNKNOWN
    known = explain(ended.text, ended.output, ended.exit_signal, around.oom_kills)
    if known is not None:
        gib = {"shm": around.shm_gib, "memory": around.more_memory_gib}.get(known.gib, 0)
        return known.outcome, known.cause, known.remedy.format(gib=gib), known.blame
    if ended.kind == "raised" and not ended.ready:
        text = _first_line(ended.text)
        cause = f"the measuring process cannot import what it needs: {text}{doing}"
        remedy = (
            "mend the image: run `python -c 'import torch'` in it; torch 2.6 or later is needed"
        )
        return Outcome.ERROR, cause, remedy, Blame.IMAGE
    if ended.kind == "timeout" and ended.by_total:
        waiting = " of waiting for its turn" if ended.ready and not ended.went else " of this check"
        cause = f"the run's deadline came after {ended.seconds:.0f} s{waiting}{doing}"
        return Outcome.ERROR, cause, "raise --deadline or run.deadline_s", Blame.SETUP
    if ended.kind == "timeout" and not ended.ready:
        cause = f"not ready to measure after {ended.seconds:.0f} s{doing}"
        remedy = "look at the file system that the image or the environment is read from"
        return Outcome.ERROR, cause, remedy, Blame.UNKNOWN
    if ended.kind == "timeout":
        cause = f"no answer in {around.timeout_s:.0f} s{doing}"
        remedy = (
            f"raise {around.check}.timeout_s if the node is only slow; else look at what hangs: "
            "storage, a lock, a driver"
        )
        return Outcome.ERROR, cause, remedy, Blame.UNKNOWN
    signal = f" of signal {ended.exit_signal}" if ended.exit_signal else ""
    text = _first_line(ended.text) or f"it died{signal}{doing}"
    cause = f"the measurement ended early: {text}"
    return Outcome.ERROR, cause, "read the last lines of output in the report", Blame.UNKNOWN


def _gpu_hung(ended: Ended, around: Circumstances) -> tuple[Outcome, str, str, Blame]:
    where = f" on {around.subject}" if around.subject else ""
    step = ended.last_progress or "a call of the driver"
    cause = f"{step}{where} did not return in {around.timeout_s:g} s: the driver or the GPU hangs"
    if around.gpu and ended.exit_signal in _CRASHES:
        return _gpu_crashed(ended, around)
    if ended.abandoned_pid is not None:
        cause += f", and process {ended.abandoned_pid} cannot be killed: it is stuck in the kernel"
    remedy = (
        "take the node out of service and look for Xid and NVRM lines in the host's dmesg; reset "
        f"the GPU (nvidia-smi --gpu-reset) or reboot; the limit is {around.check}.timeout_s"
    )
    return Outcome.FAIL, cause, remedy, Blame.NODE


def _gpu_crashed(ended: Ended, around: Circumstances) -> tuple[Outcome, str, str, Blame]:
    where = f" on {around.subject}" if around.subject else ""
    step = ended.last_progress or "a call of the driver"
    cause = f"{step}{where} crashed the process (signal {ended.exit_signal})"
    remedy = (
        "run nvidia-smi and `python -c 'import torch; torch.cuda.init()'` in the same image: a "
        "libcuda that does not fit the driver crashes both"
    )
    return Outcome.ERROR, cause, remedy, Blame.UNKNOWN


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")
