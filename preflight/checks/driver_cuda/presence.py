"""Is a driver in reach at all? Says which part of it is missing, and why in a container. Pure."""

from __future__ import annotations

from preflight.checks.driver_cuda.reading import DriverCudaReading
from preflight.diagnosis import nvml_codes
from preflight.diagnosis.cuda_circumstances import ASK_FOR_GPUS
from preflight.gpu_facts import Nvml
from preflight.judge import Miss, missed
from preflight.model import Finding
from preflight.outcome import Blame, Outcome

_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_SET_CAPABILITIES = (
    f"set {_CAPABILITIES}=compute,utility in the container, so that the NVIDIA runtime mounts both "
    "libraries"
)
_NO_SUCH_FILE = "No such file"


def presence(seen: DriverCudaReading) -> Finding:
    """The finding `present`: kernel module, libcuda and NVML are there and answer."""
    parts = [f"driver {seen.driver_version}" if seen.driver_version else "driver"]
    if seen.library is not None and seen.library.loaded:
        parts.append(f"libcuda {seen.library.version or ''}".strip())
    if seen.nvml is not None and seen.nvml.state == "ok":
        parts.append("NVML")
    finding = Finding(id="driver_cuda.present", outcome=Outcome.PASS, observed=", ".join(parts))
    miss = _miss(seen)
    if miss is None:
        return finding
    return missed(finding.model_copy(update={"observed": None}), miss)


def explains_the_rest(seen: DriverCudaReading) -> bool:
    """What is missing leaves CUDA no chance: its own complaints would only repeat it."""
    if seen.cuda_works or presence(seen).outcome not in (Outcome.FAIL, Outcome.ERROR):
        return False
    nvml_alone = seen.nvml is not None and seen.nvml.state == "no_library"
    loaded = seen.library is not None and seen.library.loaded
    return not (nvml_alone and loaded and seen.gpu_host.device_nodes)


def _miss(seen: DriverCudaReading) -> Miss | None:
    nvml, library = seen.nvml, seen.library
    if nvml is not None and nvml.state not in ("ok", "no_library"):
        return _nvml(nvml)
    without_nvml = nvml is not None and nvml.state == "no_library"
    if library is None:
        return None
    if not library.loaded and _NO_SUCH_FILE not in (library.error or ""):
        return Miss(
            f"libcuda.so.1 is there but cannot be loaded: {library.error}",
            "take libcuda out of the image: the NVIDIA runtime mounts the host's own",
            Blame.IMAGE,
        )
    if without_nvml and not (seen.cuda_works or (library.loaded and seen.gpu_host.device_nodes)):
        return _nothing(seen)
    if without_nvml:
        return _no_nvml(seen)
    return None if library.loaded else _no_libcuda(seen)


def _nvml(nvml: Nvml) -> Miss:
    if nvml.state == "no_answer":
        step, seen = nvml.step or "NVML", nvml.error or "no answer"
        return Miss(
            f"the NVIDIA driver hangs: {step} never came back ({seen})",
            "take the node out of service and look for Xid and NVRM lines in the host's dmesg; "
            "reset the GPU (nvidia-smi --gpu-reset) or reboot; a driver that only starts slowly is "
            "kept loaded by nvidia-smi -pm 1, and the limit is gpus.timeout_s",
            Blame.NODE,
        )
    if nvml.step == "import pynvml":
        return Miss(
            f"{nvml.error}: the GPUs cannot be listed",
            "install it in the image beside preflight: pip install nvidia-ml-py",
            Blame.IMAGE, Outcome.ERROR,
        )  # fmt: skip
    if nvml.state == "failed":
        step = f" (last: {nvml.step})" if nvml.step else ""
        return Miss(
            f"the GPUs could not be listed: {nvml.error or 'the process ended early'}{step}",
            "run nvidia-smi in the same container, then the gate again",
            Blame.UNKNOWN, Outcome.ERROR,
        )  # fmt: skip
    row = nvml_codes.explain(nvml.code)
    code = "" if nvml.code is None else f" (NVML {nvml.code} {row.name})"
    return Miss(f"{row.cause}{code}", row.remedy, row.blame, row.outcome)


def _nothing(seen: DriverCudaReading) -> Miss:
    """No NVML, and no CUDA either."""
    host = seen.gpu_host
    stub = seen.library is not None and seen.library.loaded
    libraries = (
        "libnvidia-ml.so.1 is not there, and libcuda is of no use"
        if stub
        else "libcuda.so.1 and libnvidia-ml.so.1 are not there"
    )
    on_host = "on a host install the NVIDIA driver"
    if host.device_nodes:
        named = ", ".join(host.device_nodes[:3])
        return Miss(
            f"the driver's libraries are not in reach, though {named} is: {libraries}",
            f"{ASK_FOR_GPUS} rather than by passing devices alone; {on_host}",
        )
    if host.kernel_module is not None:
        return Miss(
            f"the host runs NVIDIA driver {host.kernel_module}, but no GPU was given to us: "
            f"{libraries} and no /dev/nvidia* exists{_visible(seen)}",
            ASK_FOR_GPUS,
        )
    if host.pci_gpus:
        count = len(host.pci_gpus)
        return Miss(
            f"{count} NVIDIA GPU{'s' * (count > 1)} on the PCI bus, but no driver is loaded: "
            f"{libraries} and no /dev/nvidia* exists",
            "install the NVIDIA driver on the node, or load it (modprobe nvidia); where a virtual "
            "machine owns the GPU (vfio-pci), run the gate in it",
            Blame.NODE,
        )
    return Miss(
        f"no NVIDIA driver in reach: {libraries} and no /dev/nvidia* exists{_visible(seen)}",
        f"{ASK_FOR_GPUS}; {on_host}; to judge the host side alone use --thresholds cpu",
    )


def _visible(seen: DriverCudaReading) -> str:
    visible = seen.environment.get("NVIDIA_VISIBLE_DEVICES")
    if not visible:
        return ""
    if visible in ("none", "void"):
        return f" (NVIDIA_VISIBLE_DEVICES={visible})"
    return f" (NVIDIA_VISIBLE_DEVICES={visible} is set, but no NVIDIA runtime acted on it)"


def _no_nvml(seen: DriverCudaReading) -> Miss:
    integrated = seen.cuda_works and seen.driver is not None and seen.driver.devices[0].integrated
    if seen.cuda_works and (seen.wsl or seen.tegra or integrated):
        return Miss(
            "CUDA works without NVML (libnvidia-ml.so.1), as it does on Tegra and under WSL: GPUs "
            "are not listed, and their links not read",
            "nothing, where no NVML is to be had; under WSL mount /usr/lib/wsl/lib",
            Blame.SETUP, Outcome.WARN,
        )  # fmt: skip
    return Miss(
        f"libnvidia-ml.so.1 (NVML) is not there{_lacking(seen, 'utility')}",
        f"{_SET_CAPABILITIES}; on a host install the rest of the driver",
    )


def _no_libcuda(seen: DriverCudaReading) -> Miss:
    return Miss(
        f"the driver's libcuda.so.1 is not there{_lacking(seen, 'compute')}",
        f"{_SET_CAPABILITIES}; on a host install the driver's CUDA library (libcuda1)",
    )


def _lacking(seen: DriverCudaReading, capability: str) -> str:
    given = seen.environment.get(_CAPABILITIES)
    if not given or {capability, "all"} & set(given.split(",")):
        return ""
    return f": {_CAPABILITIES} is {given}, without {capability}"
