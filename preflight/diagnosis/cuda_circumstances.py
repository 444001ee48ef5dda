"""What a CUDA error code means in the circumstances it was seen in. Pure.

Most codes have one usual cause, and `cuda_codes` has it. A few mean quite different things, with
other people to blame, depending on what else is known: those are told apart here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from preflight.gpu_facts import is_gpu_node
from preflight.outcome import Blame, Outcome

ASK_FOR_GPUS = (
    "start the container with docker run --gpus all (Kubernetes: resources.limits "
    "nvidia.com/gpu: 1; Slurm: --gres=gpu:1)"
)
A_SLICE = (
    "ask for a slice (Kubernetes: nvidia.com/mig-...), create one on the host (nvidia-smi mig -cgi "
    "... -C), or turn MIG off (nvidia-smi -mig 0)"
)


@dataclass(frozen=True)
class CudaFault:
    """One error of CUDA in words."""

    code: int | None
    name: str
    """CUDA's symbol: the driver's, or the runtime's where only it has the code."""
    cause: str
    remedy: str
    blame: Blame
    words: tuple[str, ...] = ()
    """How an exception's text names it."""
    outcome: Outcome = Outcome.FAIL

    @property
    def title(self) -> str:
        """Code and name: "802 CUDA_ERROR_SYSTEM_NOT_READY"."""
        return f"{'' if self.code is None else self.code} {self.name}".strip()


@dataclass(frozen=True)
class Around:
    """What else is known where CUDA failed; the defaults stand for "not known"."""

    driver_version: str | None = None
    """Of the kernel's half of the driver."""
    library_loaded: bool | None = None
    library_version: str | None = None
    library_path: str | None = None
    compat: bool = False
    """libcuda is from a compat package."""
    required_driver: str | None = None
    """The oldest driver that torch's CUDA runs on, where this one is older."""
    nvml_works: bool = False
    container: str | None = None
    listed: bool = False
    """NVML lists the GPU that CUDA failed on."""
    visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES of the job; None: not set."""
    device_nodes: tuple[str, ...] | None = None
    broken_gpus: tuple[str, ...] = ()
    """GPUs that NVML calls unusable, with its word."""
    closed_by_mig: tuple[str, ...] = ()
    """GPUs in MIG mode of which no slice is ours."""
    compute_mode: str | None = None
    processes: tuple[int, ...] = ()
    """Holding a context on the GPU."""
    fabric: str | None = None
    """State of the NVSwitch fabric, as NVML has it."""
    mps: str | None = None
    """CUDA_MPS_PIPE_DIRECTORY of the job."""
    worked_before: bool = False
    """CUDA ran on this GPU a moment ago."""


def refined(fault: CudaFault, around: Around) -> CudaFault:
    """The fault with cause, remedy and blame as the circumstances have them."""
    if around.worked_before and fault.code in _GONE:
        cause = f"the GPU worked a moment ago and no longer does ({fault.title})"
        remedy = "look for Xid lines in the host's dmesg (79: it fell off the bus), then reboot"
        return dataclasses.replace(fault, cause=cause, remedy=remedy, blame=Blame.UNKNOWN)
    refine = None if fault.code is None else _REFINE.get(fault.code)
    change = None if refine is None else refine(around)
    if change is None:
        return fault
    cause, remedy, blame = change
    return dataclasses.replace(fault, cause=cause, remedy=remedy, blame=blame)


_GONE = {100, 101, 304, 999}  # of a GPU that never worked these say that it was not given

_Change = tuple[str, str, Blame]


def _too_old(around: Around) -> _Change | None:
    if around.library_loaded is False:
        cause = "no driver library is in reach: libcuda.so.1 is not there"
        return cause, ASK_FOR_GPUS, Blame.SETUP
    if around.required_driver is None:
        return None
    cause = (
        f"the driver ({around.driver_version}) is older than the CUDA that torch was built with "
        f"needs ({around.required_driver})"
    )
    remedy = (
        f"install driver {around.required_driver} or newer on the node, or use an image whose "
        "torch was built for an older CUDA"
    )
    return cause, remedy, Blame.NODE


def _busy(around: Around) -> _Change | None:
    if around.compute_mode == "prohibited":
        cause = "the GPU's compute mode is prohibited: nobody may compute on it"
        return cause, "set it back on the node, nvidia-smi -c DEFAULT", Blame.NODE
    if around.compute_mode in ("exclusive_process", "exclusive_thread") and around.processes:
        pids = ", ".join(str(pid) for pid in around.processes)
        cause = f"the GPU takes one process at a time, and process {pids} holds it"
        return cause, "end that process, or run the gate when it has ended", Blame.SHARED
    if around.mps is not None:
        cause = f"the GPU takes no further client of MPS (CUDA_MPS_PIPE_DIRECTORY={around.mps})"
        remedy = "look for too many clients and for a daemon that is not the one of this GPU"
        return cause, remedy, Blame.SHARED
    return None


def _none_found(around: Around) -> _Change | None:
    if around.broken_gpus:
        cause = f"CUDA finds no GPU that works; NVML says: {', '.join(around.broken_gpus)}"
        remedy = "take the node out of service and reset the GPU (nvidia-smi --gpu-reset) or reboot"
        return cause, remedy, Blame.NODE
    if around.listed:
        cause = "NVML lists the GPU, but CUDA cannot open it: its device node is missing or denied"
        remedy = "create the container again; compare ls -l /dev/nvidia* here and on the host"
        return cause, remedy, Blame.SETUP
    if around.closed_by_mig:
        cause = f"MIG is on for {', '.join(around.closed_by_mig)}, and no slice of it is ours"
        return cause, A_SLICE, Blame.SETUP
    if around.visible_devices == "NoDevFiles":  # Slurm's word
        return "the job asked Slurm for no GPU", "ask for one: --gres=gpu:1", Blame.SETUP
    if around.visible_devices is not None:
        shown = around.visible_devices or '""'
        cause = f"CUDA_VISIBLE_DEVICES={shown} names no GPU that is here"
        remedy = "unset CUDA_VISIBLE_DEVICES, or count the GPUs inside the container from 0"
        return cause, remedy, Blame.SETUP
    nodes = around.device_nodes
    if nodes is not None and not any(is_gpu_node(node) or node == "/dev/dxg" for node in nodes):
        cause = "CUDA finds no GPU, and there is no /dev/nvidia0: none was given to this container"
        return cause, ASK_FOR_GPUS, Blame.SETUP
    return None


def _not_ready(around: Around) -> _Change | None:
    if around.fabric not in ("not started", "in progress"):
        return None
    cause = f"the NVSwitch fabric is not ready: NVML says {around.fabric}"
    remedy = (
        "start nvidia-fabricmanager of the driver's own version on the node and wait until the "
        "fabric is completed; NVLink 5 also needs the module ib_umad and the NVLink subnet manager"
    )
    return cause, remedy, Blame.NODE


def _mismatch(around: Around) -> _Change | None:
    library, driver = around.library_version, around.driver_version
    named = f"libcuda {library or 'of unknown version'} from {around.library_path or 'the image'}"
    if around.compat:
        cause = (
            f"the image's compat library is in use and does not fit this driver: {named}, "
            f"driver {driver or 'of unknown version'}"
        )
        remedy = (
            "take the compat folder out of the loader's path (LD_LIBRARY_PATH, "
            "/etc/ld.so.conf.d) so that the driver's own libcuda is found"
        )
        return cause, remedy, Blame.IMAGE
    if library is None or driver is None or library == driver:
        return None
    if around.nvml_works:
        # NVML refuses another version than the kernel's as well: the driver itself is whole.
        cause = f"{named} stands in front of the driver's own, which is {driver}"
        remedy = f"remove {around.library_path or 'that libcuda'}, or what puts it on the path"
        return cause, remedy, Blame.IMAGE if around.container else Blame.SETUP
    cause = f"libcuda is {library}, but the kernel's half of the driver {driver}: one was changed"
    remedy = (
        "reboot the node, or reload its kernel modules; refresh the CDI specification with "
        "nvidia-ctk cdi generate"
    )
    return cause, remedy, Blame.NODE


def _compat_refused(around: Around) -> _Change | None:
    if not around.compat:
        return None
    cause = (
        f"the image runs a newer CUDA through its compat library ({around.library_path}), and "
        f"this GPU or driver {around.driver_version or ''} does not take it".replace("  ", " ")
    )
    remedy = (
        "use an image built for a CUDA that the driver serves by itself, or install a newer "
        "driver on the node; forward compatibility is for data-centre GPUs"
    )
    return cause, remedy, Blame.IMAGE


def _unknown(around: Around) -> _Change | None:
    nodes = around.device_nodes
    if nodes is None or "/dev/nvidia-uvm" in nodes or "/dev/dxg" in nodes:
        return None
    cause = "/dev/nvidia-uvm is missing, and CUDA cannot start without it"
    remedy = (
        "load it on the host with nvidia-modprobe -u -c=0 (or modprobe nvidia_uvm), then start "
        "the container again"
    )
    return cause, remedy, Blame.SETUP


_REFINE: Mapping[int, Callable[[Around], _Change | None]] = {
    35: _too_old,
    46: _busy,
    100: _none_found,
    802: _not_ready,
    803: _mismatch,
    804: _compat_refused,
    999: _unknown,
}
