"""What it means that a unit of work ended without a whole reading: Ended in, Finding out. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from preflight.diagnosis.loader_failures import Failure, explain
from preflight.ended import Ended
from preflight.model import Finding
from preflight.outcome import Blame, Outcome

_SEE_THE_LINE = "see what that line of the job's own code waits for: run it by hand on this node"
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
    more_memory_gib: int
    """What remedies suggest, whole GiB."""
    shm_size_gib: float | None
    """None: it is not mounted."""
    shm_need_gib: float | None
    """Of all ranks' batches in flight; None for a data set whose samples nobody has seen."""
    nofile: int | None
    stood_at: str | None = None
    """The line of the job's own code that the unit printed that it was at, when it ended."""


def finding(ended: Ended, around: Circumstances) -> Finding:
    """The finding `<check>.completed` of a unit that was cut off, died or raised."""
    known = explain(ended.text, ended.output, ended.exit_signal, around.oom_kills)
    outcome, cause, remedy, blame, name = _explain(ended, around, known)
    return Finding(
        id=f"{around.check}.{name}",
        outcome=outcome,
        subject=around.subject,
        cause=cause,
        remedy=remedy,
        blame=blame,
    )


def _explain(
    ended: Ended, around: Circumstances, known: Failure | None
) -> tuple[Outcome, str, str, Blame, str]:
    hung = ended.kind == "timeout" and ended.went and not ended.by_total
    if ended.kind in ("unavailable", "stopped"):
        said = _said(ended, around)
    elif hung and around.gpu and around.cpus >= 1:
        said = _gpu_hung(ended, around)
    elif around.gpu and ended.exit_signal in _CRASHES:
        said = _gpu_crashed(ended, around)
    elif ended.abandoned_pid is None and known is not None:
        return (known.outcome, *_of_the_table(known, ended, around), known.blame, known.finding)
    else:
        said = _unexplained(ended, around)
    return (*said, "completed")


def _said(ended: Ended, around: Circumstances) -> tuple[Outcome, str, str, Blame]:
    if ended.kind == "unavailable":
        cause, _, remedy = ended.text.partition("; ")
        return Outcome.ERROR, cause, remedy or "do what the cause says", Blame.SETUP
    cause = f"stopped by {around.stopped_by}{_doing(ended, around)}"
    return Outcome.ERROR, cause, "run the gate again", Blame.SETUP


def _of_the_table(known: Failure, ended: Ended, around: Circumstances) -> tuple[str, str]:
    """Cause and remedy: the child's own words, where it has some for this very failure."""
    at = f" at {around.stood_at}" if known.crash and around.stood_at else ""
    gib = {"shm": _more_shm(around), "memory": around.more_memory_gib}.get(known.gib, 0)
    nofile = "" if around.nofile is None else f" ({around.nofile})"
    cause = known.cause.format(shm=_shm(around), nofile=nofile) + at
    remedy = known.remedy.format(gib=gib)
    before, own, told = ended.text.rpartition(known.told_as) if known.told_as else ("", "", "")
    if not own:
        return cause, remedy
    said, _, helps = told.partition("\n")
    return said, helps if helps and not before else remedy


def _shm(around: Circumstances) -> str:
    size, need = around.shm_size_gib, around.shm_need_gib
    has = "it is not mounted" if size is None else f"it has {_size(size)}"
    if need is None:
        return f"{has}, and the batches in flight need more"
    return f"{has}, the batches in flight need {_size(need)}"


def _more_shm(around: Circumstances) -> int:
    """Whole GiB: a quarter more than the need, as shm.margin suggests, and more than there is."""
    need, size = around.shm_need_gib, around.shm_size_gib or 0.0
    return max(math.ceil(1.25 * need) if need else 1, math.floor(size) + 1)


def _size(gib: float) -> str:
    return f"{gib:.3g} GiB" if gib >= 1 else f"{gib * 1024:.3g} MiB"


def _doing(ended: Ended, around: Circumstances) -> str:
    last = f"last: {ended.last_progress}" if ended.last_progress else ""
    at = f"at {around.stood_at}" if around.stood_at else ""
    both = ", ".join(part for part in (last, at) if part)
    return f" ({both})" if both else ""


def _unexplained(ended: Ended, around: Circumstances) -> tuple[Outcome, str, str, Blame]:
    doing = _doing(ended, around)
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
        remedy = "raise --deadline or run.deadline_s"
        remedy = f"{remedy}, or {_SEE_THE_LINE}" if around.stood_at else remedy
        return Outcome.ERROR, cause, remedy, Blame.SETUP
    if ended.kind == "timeout" and not ended.ready:
        cause = f"not ready to measure after {ended.seconds:.0f} s{doing}"
        remedy = "look at the file system that the image or the environment is read from"
        remedy = _SEE_THE_LINE if around.stood_at else remedy
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
