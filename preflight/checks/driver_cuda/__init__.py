"""driver_cuda: can torch in this image use the GPUs of this node?

Driver and library are read, CUDA is started by itself before torch starts it, and one real kernel
runs on every GPU: that a GPU is listed, or that torch calls it available, proves nothing.
"""

from __future__ import annotations

from typing import Any

from preflight.checks.contract import Check, Unavailable, Unit
from preflight.checks.driver_cuda.coverage import coverage, version_numbers
from preflight.checks.driver_cuda.judge import judge
from preflight.checks.driver_cuda.reading import DriverCudaLimits, DriverCudaReading
from preflight.diagnosis.cuda_circumstances import ASK_FOR_GPUS
from preflight.diagnosis.headroom import refusal
from preflight.facts import Facts
from preflight.machine import cuda_driver
from preflight.measure import device

KERNEL_NUMBERS = 1 << 20  # enough for many blocks of threads; the sum is exact in float64

_VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_PIPE_DIRECTORY",
    "LD_LIBRARY_PATH",
)


def observe(unit: Unit) -> DriverCudaReading:
    """Read what is known, load libcuda, start CUDA, run a kernel; each step only if it can."""
    reading = _known(unit)
    unit.emit(reading)
    if reading.nvml is not None and reading.nvml.state == "no_answer":
        # A driver that hangs for NVML hangs for CUDA, and may hold this process for ever.
        unit.ready()
        return reading
    unit.progress(f"loading {cuda_driver.LIBRARY}")
    library = cuda_driver.load()
    reading = reading.model_copy(update={"library": library.facts})
    unit.emit(reading)
    with_torch = library.facts.loaded and not library.facts.stub and bool(reading.torch_cuda)
    if with_torch:
        check_memory(unit.limits, unit.facts)
        unit.progress("importing torch")
        device.load()
    unit.ready()
    if not library.facts.loaded:
        return reading
    unit.progress("starting CUDA (cuInit)")
    reading = reading.model_copy(update={"driver": cuda_driver.start(library)})
    unit.emit(reading)
    if with_torch and reading.cuda_works:
        unit.progress("running a kernel")
        reading = reading.model_copy(update=_kernel(reading))
    return reading


def check_memory(limits: DriverCudaLimits, facts: Facts) -> None:
    """Refuse to start what the kernel would have to kill: every GPU has a process with torch.

    Raises:
        Unavailable: with the arithmetic.
    """
    processes, each = max(1, len(facts.cuda_devices())), limits.process_memory_gib
    what = f"{processes} processes x {each:g} GiB"
    headroom_gib = facts.memory.headroom_gib
    if refused := refusal(what, processes * each, limits.max_memory_share, headroom_gib):
        raise Unavailable(refused)


def _known(unit: Unit) -> DriverCudaReading:
    facts, mine = unit.facts, unit.device()
    nvml, variables = facts.nvml, {name: facts.environment.get(name) for name in _VARIABLES}
    told = nvml.driver_version if nvml is not None else None
    return DriverCudaReading(
        subject=unit.subject,
        driver_version=told if version_numbers(told) else facts.gpu_host.kernel_module or told,
        nvml=nvml,
        gpu_host=facts.gpu_host,
        gpu=mine.gpu if mine else None,
        closed_by_mig=tuple(g.subject for g in facts.gpus if g.mig and not g.mig_slices),
        broken_gpus=tuple(f"{gpu.subject} {gpu.error}" for gpu in facts.gpus if gpu.error),
        torch=facts.torch,
        container=facts.system.container,
        environment={name: value for name, value in variables.items() if value is not None},
    )


def _kernel(reading: DriverCudaReading) -> dict[str, Any]:
    assert reading.driver is not None
    found: dict[str, Any] = {}
    try:
        opened = device.open_device()
        found["arch_list"] = opened.arch_list()
        cover = coverage(
            found["arch_list"], reading.capability, reading.driver.cuda_version, reading.torch_cuda
        )
        if cover.covered is not False:
            expected = float(KERNEL_NUMBERS * (KERNEL_NUMBERS - 1) // 2)
            found["kernel_expected"] = repr(expected)
            found["kernel_sum"] = repr(opened.kernel(KERNEL_NUMBERS))
    except device.DeviceError as error:
        found["kernel_code"], found["kernel_error"] = error.code, str(error)
    return found


CHECK = Check(
    id="driver_cuda",
    title="Driver and CUDA",
    about=(
        "Reads the driver's version, loads libcuda as torch would and notes where it comes from, "
        "starts CUDA (cuInit) and keeps its error code, holds the driver against the floor of the "
        "CUDA that torch was built with and the GPU against the architectures in it, then sums "
        "numbers with a real kernel on every GPU and compares the result. Error codes are told "
        "with their cause, the remedy, and who has to act."
    ),
    limits=DriverCudaLimits,
    reading=DriverCudaReading,
    findings={
        "present": ASK_FOR_GPUS,
        "init": "do what the code's own text says: fabric manager, /dev/nvidia-uvm, reboot",
        "driver_floor": "install a newer driver, or use an image built for an older CUDA",
        "torch_build": "install a CUDA build of torch in the image",
        "architecture": "use an image whose torch was built for this GPU",
        "kernel": "do what the code's own text says; a wrong sum means a broken GPU",
        "compat_active": "take the compat folder out of the loader's path where it is not needed",
        "branch_end_of_life": "move the node to a driver branch with long-term support",
        "unknown_cuda_major": "update preflight, or set driver_cuda.min_driver_by_cuda_major",
    },
    observe=observe,
    judge=judge,
    fan_out="gpu",
    turns="together",
    gpu=True,
)
