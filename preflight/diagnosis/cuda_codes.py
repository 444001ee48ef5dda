"""CUDA's error codes: what each usually means in a container, what to do, who has to do it.

Numbers, names and words are those of CUDA 13.0's headers and runtime (cuda.h, driver_types.h,
cudaGetErrorString); causes are what public threads about containers came to. Data, no logic.
"""

from __future__ import annotations

import re

from preflight.diagnosis.cuda_circumstances import ASK_FOR_GPUS, Around, CudaFault, refined
from preflight.outcome import Blame

_REPLACE = (
    "take the node out of service and reset the GPU (nvidia-smi --gpu-reset); replace it when the "
    "error comes back"
)

FAULTS = (
    CudaFault(
        2, "CUDA_ERROR_OUT_OF_MEMORY",
        "memory was refused: the GPU's is full, or the host had no page-locked memory to give",
        "see who is on the GPU (nvidia-smi) and how much memory the container may have",
        Blame.UNKNOWN, ("out of memory",),
    ),
    CudaFault(
        3, "CUDA_ERROR_NOT_INITIALIZED",
        "the driver did not start: it is half installed, or kernel address randomisation meets "
        "HMM (NVIDIA/open-gpu-kernel-modules#797)",
        "install the driver on the node again, or give its module uvm_disable_hmm=1",
        Blame.NODE, ("initialization error",),
    ),
    CudaFault(
        34, "CUDA_ERROR_STUB_LIBRARY",
        "the libcuda.so.1 that is found first is the toolkit's stub: for linking only",
        "take the stubs folder out of the image's LD_LIBRARY_PATH and ld.so.conf",
        Blame.IMAGE, ("stub library",),
    ),
    CudaFault(
        35, "cudaErrorInsufficientDriver",
        "the driver is too old for the CUDA that torch was built with, or is not in reach",
        "install a newer driver on the node, or use an image built for an older CUDA",
        Blame.UNKNOWN,
        ("driver version is insufficient", "driver on your system is too old",
         "found no nvidia driver"),
    ),
    CudaFault(
        36, "cudaErrorCallRequiresNewerDriver",
        "a library in the image calls a function that this driver is too old to have",
        "use an image built for an older CUDA, or install a newer driver on the node",
        Blame.IMAGE, ("not supported in the installed cuda driver",),
    ),
    CudaFault(
        46, "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "the GPU is busy or closed to us: another process holds it alone, or MPS takes no more",
        "see who holds it (nvidia-smi, and the MPS daemon) and run the gate when they have ended",
        Blame.SHARED, ("busy or unavailable",),
    ),
    CudaFault(
        100, "CUDA_ERROR_NO_DEVICE",
        "CUDA finds no GPU: none was given to this container or job",
        ASK_FOR_GPUS,
        Blame.SETUP, ("no cuda-capable device is detected", "no cuda gpus are available"),
    ),
    CudaFault(
        101, "CUDA_ERROR_INVALID_DEVICE",
        "a GPU number was asked for that does not exist here",
        "count the GPUs inside the container from 0, or name them by UUID (nvidia-smi -L)",
        Blame.SETUP, ("invalid device ordinal",),
    ),
    CudaFault(
        102, "CUDA_ERROR_DEVICE_NOT_LICENSED",
        "this vGPU has no licence",
        "check the licence server and gridd.conf on the node (nvidia-smi -q names the state)",
        Blame.NODE, ("doesn't have valid grid license",),
    ),
    CudaFault(
        103, "cudaErrorSoftwareValidityNotEstablished",
        "the driver found its own code damaged",
        "install the driver on the node again",
        Blame.NODE, ("integrity checks failed",),
    ),
    CudaFault(
        127, "cudaErrorStartupFailure",
        "CUDA failed inside while it started",
        "reboot the node; install the driver again when that does not help",
        Blame.NODE, ("startup failure in cuda runtime",),
    ),
    CudaFault(
        209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "torch was not built for this GPU's architecture",
        "use an image whose torch was built for it (torch.cuda.get_arch_list() tells for which)",
        Blame.IMAGE, ("no kernel image is available",),
    ),
    CudaFault(
        214, "CUDA_ERROR_ECC_UNCORRECTABLE",
        "the GPU's memory gave an error that ECC cannot correct",
        _REPLACE, Blame.NODE, ("uncorrectable ecc error",),
    ),
    CudaFault(
        220, "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "an NVLink gave an error that cannot be corrected",
        _REPLACE, Blame.NODE, ("uncorrectable nvlink error",),
    ),
    CudaFault(
        221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        "libnvidia-ptxjitcompiler.so.1 is not in reach; it belongs to the driver on the host",
        "set NVIDIA_DRIVER_CAPABILITIES=compute,utility so that the runtime mounts it",
        Blame.SETUP, ("jit compiler library not found",),
    ),
    CudaFault(
        222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "torch has only PTX for this GPU, and the driver is older than the CUDA that made it",
        "use an image whose torch has code of its own for this GPU, or install a newer driver",
        Blame.IMAGE, ("unsupported toolchain",),
    ),
    CudaFault(
        223, "CUDA_ERROR_JIT_COMPILATION_DISABLED",
        "torch has only PTX for this GPU, and compiling it is switched off",
        "unset CUDA_DISABLE_PTX_JIT",
        Blame.SETUP, ("jit compilation was disabled",),
    ),
    CudaFault(
        226, "CUDA_ERROR_CONTAINED",
        "the GPU contained an error of its memory or of an NVLink",
        _REPLACE, Blame.NODE, ("invalid access of peer gpu memory",),
    ),
    CudaFault(
        304, "CUDA_ERROR_OPERATING_SYSTEM",
        "the kernel refused a call of the driver: a device cgroup, seccomp, or a missing "
        "/dev/nvidia-uvm",
        "compare ls -l /dev/nvidia* here and on the host, then create the container again",
        Blame.SETUP, ("os call failed",),
    ),
    CudaFault(
        700, "CUDA_ERROR_ILLEGAL_ADDRESS",
        "the GPU touched memory that it was not given, where a sum and a copy are all we ask of it",
        _REPLACE, Blame.NODE, ("illegal memory access",),
    ),
    CudaFault(
        719, "CUDA_ERROR_LAUNCH_FAILED",
        "the GPU broke off what it was doing, and a sum and a copy are all we ask of it",
        _REPLACE, Blame.NODE, ("unspecified launch failure",),
    ),
    CudaFault(
        800, "CUDA_ERROR_NOT_PERMITTED",
        "the driver may not do what it has to: MPS, locked memory or IPC is restricted here",
        "raise the limit on locked memory (docker run --ulimit memlock=-1) and look at the "
        "seccomp profile",
        Blame.SETUP, ("operation not permitted",),
    ),
    CudaFault(
        802, "CUDA_ERROR_SYSTEM_NOT_READY",
        "the GPUs wait for their NVSwitch fabric: the fabric manager is not running, is of "
        "another version than the driver, or is not done",
        "start nvidia-fabricmanager of the driver's own version on the node; NVLink 5 also needs "
        "the module ib_umad and the NVLink subnet manager",
        Blame.NODE, ("system not yet initialized",),
    ),
    CudaFault(
        803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda and the kernel's half of the driver are of different versions",
        "find where libcuda comes from (ldconfig -p, LD_LIBRARY_PATH): it has to be the host's",
        Blame.SETUP, ("unsupported display driver / cuda driver combination",),
    ),
    CudaFault(
        804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "the image's compat library is in use, and this GPU or driver does not take it",
        "take the compat folder out of the loader's path, or use an image built for a CUDA that "
        "the driver serves",
        Blame.IMAGE, ("forward compatibility was attempted",),
    ),
    CudaFault(
        805, "CUDA_ERROR_MPS_CONNECTION_FAILED",
        "the MPS daemon does not answer",
        "start nvidia-cuda-mps-control on the node and give the container its pipe directory, or "
        "unset CUDA_MPS_PIPE_DIRECTORY",
        # A pipe directory that was not mounted looks the same: no proof against the node.
        Blame.SETUP, ("mps client failed to connect",),
    ),
    CudaFault(
        807, "CUDA_ERROR_MPS_SERVER_NOT_READY",
        "the MPS server takes no clients: it recovers from a fault of an earlier one",
        "restart nvidia-cuda-mps-control on the node",
        Blame.NODE, ("mps server is not ready",),
    ),
    CudaFault(
        999, "CUDA_ERROR_UNKNOWN",
        "CUDA cannot reach the device: its cgroup denies it since systemd was reloaded, or the "
        "container got only some of the device nodes",
        "create the container again; compare ls -l /dev/nvidia* here and on the host",
        Blame.SETUP, ("unknown error",),
    ),
)  # fmt: skip

CODES = {fault.code: fault for fault in FAULTS}

_NUMBERED = re.compile(r"\berror:? (\d{1,3})\b", re.IGNORECASE)


def explain(
    code: int | None, text: str = "", around: Around | None = None, name: str | None = None
) -> CudaFault:
    """What an error of CUDA means.

    `text` is the exception's, which names the error where the code is not known; `name` is
    libcuda's own for a code that may be newer than the table. An unknown one is told as it came.
    """
    known = code_in(text) if code is None else code
    fault = CODES.get(known)
    if fault is not None:
        return refined(fault, around or Around())
    told = "" if known is None else f"code {known}"
    said = ": ".join(part for part in (told, name, text.strip().partition("\n")[0]) if part)
    mps = around.mps if around is not None else None
    under = "CUDA_MPS_PIPE_DIRECTORY is set: " if mps is not None else "under MPS "
    return CudaFault(
        known, name or "", f"CUDA gave an error that is in no table here: {said or 'no text'}",
        "look for Xid and NVRM lines in the host's dmesg and for the code in CUDA's documentation; "
        f"{under}check that the CUDA_MPS_* variables name the daemon of this GPU",
        Blame.UNKNOWN,
    )  # fmt: skip


def code_in(text: str) -> int | None:
    """The code that an exception's text names, by number or by its usual words."""
    for number in _NUMBERED.findall(text):
        if int(number) in CODES:
            return int(number)
    lower = text.lower()
    return next(
        (fault.code for fault in FAULTS if any(words in lower for words in fault.words)), None
    )
