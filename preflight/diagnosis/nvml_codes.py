"""NVML's error codes: what each means for the driver or a whole GPU, what to do, who has to do it.

Numbers and names are those of nvmlReturn_t in nvml.h (API 13); causes are what public threads
about containers came to. Codes that only settings and resets give are left out. Data, no logic.
"""

from __future__ import annotations

from dataclasses import dataclass

from preflight.diagnosis.cuda_circumstances import ASK_FOR_GPUS
from preflight.outcome import Blame, Outcome


@dataclass(frozen=True)
class NvmlFault:
    """One error of NVML in words."""

    code: int | None
    name: str
    cause: str
    remedy: str
    blame: Blame
    outcome: Outcome = Outcome.FAIL


_DRAIN = "take the node out of service"
_XID = "look for Xid and NVRM lines in the host's dmesg"
_AGAIN = "run the gate again; if it stays, compare with nvidia-smi in the same container"
_BINDING = "install the newest nvidia-ml-py in the image"

FAULTS = (
    NvmlFault(
        1, "uninitialized",
        "NVML was asked before it had started, or its start was undone",
        _AGAIN,
        Blame.UNKNOWN, Outcome.ERROR,
    ),
    NvmlFault(
        2, "invalid argument",
        "NVML does not understand how it was asked: nvidia-ml-py and the driver do not match",
        f"{_BINDING}, or the one of the driver's own branch",
        Blame.IMAGE, Outcome.ERROR,
    ),
    NvmlFault(
        3, "not supported",
        "NVML does not answer this here, as is normal on Jetson, WSL, MIG and vGPU",
        "nothing: what NVML would have told is left out",
        Blame.UNKNOWN, Outcome.SKIP,
    ),
    NvmlFault(
        4, "no permission",
        "this user or this container may not open the GPU: the mode of /dev/nvidia*, the device "
        "cgroup or SELinux forbids it",
        f"{ASK_FOR_GPUS} rather than by passing devices alone; under SELinux allow containers to "
        "use devices (setsebool -P container_use_devices 1)",
        Blame.SETUP,
    ),
    NvmlFault(
        6, "not found",
        "NVML no longer knows a GPU or MIG slice that it has just listed",
        "compare nvidia-smi -L here and on the host; where MIG was set up anew, generate the CDI "
        "specification again (nvidia-ctk cdi generate) and re-create the container",
        Blame.UNKNOWN, Outcome.ERROR,
    ),
    NvmlFault(
        8, "insufficient power",
        "the GPU's external power cables are not attached as they should be",
        f"{_DRAIN}, switch it off, and seat the GPU's power cables",
        Blame.NODE,
    ),
    NvmlFault(
        9, "driver not loaded",
        "the NVIDIA kernel module is not loaded on the node",
        "load it (modprobe nvidia); where that fails read dmesg, and install the driver again: a "
        "new kernel needs a new build of the module (dkms status)",
        Blame.NODE,
    ),
    NvmlFault(
        10, "timeout",
        "the GPU did not answer the driver in time",
        f"{_DRAIN} and {_XID}; reset the GPU (nvidia-smi --gpu-reset) or reboot",
        Blame.NODE,
    ),
    NvmlFault(
        11, "irq issue",
        "the kernel found that interrupts of the GPU do not arrive",
        f"{_DRAIN} and {_XID}; reboot, and look at the firmware's interrupt and IOMMU settings "
        "when it comes back",
        Blame.NODE,
    ),
    NvmlFault(
        12, "library not found",
        "libnvidia-ml.so.1 is not in the container, or cannot be loaded: the NVIDIA runtime did "
        "not act, or was not asked for the capability utility",
        f"{ASK_FOR_GPUS}, with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        Blame.SETUP,
    ),
    NvmlFault(
        13, "function not found",
        "libnvidia-ml.so.1 lacks a function that every supported driver has: it is very old, or "
        "not the driver's own",
        "take libnvidia-ml out of the image, so that the NVIDIA runtime mounts the host's; else "
        "install a newer driver on the node",
        Blame.UNKNOWN, Outcome.ERROR,
    ),
    NvmlFault(
        14, "corrupted inforom",
        "the GPU's infoROM, its memory of what it is and of its faults, is corrupted",
        f"{_DRAIN} and have the GPU replaced or its infoROM restored by the vendor",
        Blame.NODE,
    ),
    NvmlFault(
        15, "gpu is lost",
        "the GPU has fallen off the PCIe bus, or can no longer be reached",
        f"{_DRAIN} and {_XID} (Xid 79); reboot, and replace the GPU when it is lost again",
        Blame.NODE,
    ),
    NvmlFault(
        16, "reset required",
        "the GPU works again only after a reset, as after an uncorrectable memory error",
        f"{_DRAIN}, reset the GPU (nvidia-smi --gpu-reset) or reboot; {_XID}, and replace the GPU "
        "when it comes back",
        Blame.NODE,
    ),
    NvmlFault(
        17, "operating system",
        "the operating system keeps us from the GPU's control device: the device cgroup of "
        "the container does not have /dev/nvidiactl",
        f"re-create the container: {ASK_FOR_GPUS} rather than by mounting /dev",
        Blame.SETUP,
    ),
    NvmlFault(
        18, "lib rm version mismatch",
        "the driver's libraries and the loaded kernel module are of different versions: the driver "
        "was upgraded under a running module",
        "reboot the node, and keep unattended upgrades from the driver's packages; where "
        "nvidia-smi works on the host, the image has a libnvidia-ml of its own: take it out",
        Blame.NODE,
    ),
    NvmlFault(
        19, "in use",
        "the GPU is in use by somebody, and NVML cannot answer meanwhile",
        "see who holds it (nvidia-smi) and run the gate when they have ended",
        Blame.SHARED, Outcome.ERROR,
    ),
    NvmlFault(
        20, "memory",
        "NVML got no memory for its answer",
        "give the container more memory (docker run --memory; resources.limits.memory), or wait "
        "until the host has some",
        Blame.SETUP, Outcome.ERROR,
    ),
    NvmlFault(
        21, "no data",
        "NVML has nothing to tell here",
        "nothing: what NVML would have told is left out",
        Blame.UNKNOWN, Outcome.SKIP,
    ),
    NvmlFault(
        25, "argument version mismatch",
        "nvidia-ml-py asks in a form that this driver does not know",
        f"{_BINDING}, or the one of the driver's own branch",
        Blame.IMAGE, Outcome.ERROR,
    ),
    NvmlFault(
        26, "deprecated",
        "nvidia-ml-py asks in a form that this driver no longer knows",
        _BINDING,
        Blame.IMAGE, Outcome.ERROR,
    ),
    NvmlFault(
        27, "not ready",
        "the driver or the GPU is not ready yet: it is still starting, or confidential computing "
        "waits to be set ready",
        "run the gate again in a minute; with confidential computing set the GPUs ready first "
        "(nvidia-smi conf-compute -srs 1)",
        Blame.UNKNOWN, Outcome.ERROR,
    ),
    NvmlFault(
        28, "gpu not found",
        "the driver runs and finds no GPU",
        f"{ASK_FOR_GPUS}; where nvidia-smi -L on the host is empty too, {_XID} and compare with "
        "lspci -d 10de:",
        Blame.UNKNOWN,
    ),
    NvmlFault(
        29, "invalid state",
        "the GPU is in a state in which NVML cannot answer: it is being reset or reconfigured",
        _AGAIN,
        Blame.UNKNOWN, Outcome.ERROR,
    ),
    NvmlFault(
        30, "reset type not supported",
        "somebody resets a GPU in a way that it does not support",
        _AGAIN,
        Blame.UNKNOWN, Outcome.ERROR,
    ),
    NvmlFault(
        999, "unknown",
        "the container has lost its access to the GPU, as after systemctl daemon-reload on the "
        "host, or the driver failed inside",
        "re-create the container (waiting does not help) and have the GPU injected through CDI, "
        f"which survives a reload; where nvidia-smi fails on the host too, {_XID}",
        Blame.SETUP,
    ),
)  # fmt: skip

_BY_CODE = {fault.code: fault for fault in FAULTS}


def explain(code: int | None) -> NvmlFault:
    """The row of a code; for one that the table lacks, what can be said without it."""
    named = "without a code" if code is None else f"with code {code}"
    unheard = NvmlFault(
        code, "unknown to preflight",
        f"NVML failed {named}, which says nothing of the cause",
        f"run nvidia-smi in the same container and on the host; {_XID}",
        Blame.UNKNOWN, Outcome.ERROR,
    )  # fmt: skip
    return _BY_CODE.get(code, unheard)
