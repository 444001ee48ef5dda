"""One GPU as NVML tells it, question by question. What is not answered is None, with the reason.

The differences between drivers, bindings and kinds of GPU end here. It never judges, and it may
be read from another thread while a question is still without an answer.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from preflight.gpu_facts import Gpu, PcieLink
from preflight.machine.kernel_text import gib
from preflight.machine.nvml import (
    FUNCTION_NOT_FOUND,
    LINK,
    NO_PERMISSION,
    NOT_SUPPORTED,
    Doing,
    Refused,
    call,
    constant,
    error_name,
    lanes,
    number,
    positive,
    text,
)

_LOST = {15, 16}  # GPU is lost, reset required: no other question would be answered
# Invalid argument, function not found, version mismatch, deprecated, or not NVML's own words:
# driver and binding are of different times, and may agree on an older or newer question.
_TRY_ANOTHER_FORM = {2, FUNCTION_NOT_FOUND, 25, 26, None}

_NO_LINK = PcieLink(gen=None, width=None, max_gen=None, max_width=None, gpu_max_gen=None)
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
# 3 and 4 are the host of vGPUs.
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "none", 4: "none"}
_FABRIC = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
_FABRIC_COMPLETED = 3
_FABRIC_FORMS = ("c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfo_v3_t")
_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
# developer.nvidia.com/cuda-gpus: Nano and TX1, TX2, Xavier, Orin, Thor (10.1 until CUDA 13), GB10.
_INTEGRATED = {"5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"}
_NODE_WORDS = 16  # of 64 NUMA nodes each: Linux has at most 1024
_MOST_PIDS = 1 << 22  # PID_MAX_LIMIT: a larger one is a record that the binding misreads
_BUS_ID = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII | re.IGNORECASE)


class GpuReading:
    """One GPU while it is asked; another thread may look at what was answered so far."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.step = "nvmlDeviceGetHandleByIndex_v2"
        """The call that was made last."""
        self.forbidden = False
        """NVML counts it but does not let us access it: it is not ours."""
        self._lost: Refused | None = None
        self._device: _Device | None = None

    def read(self) -> None:
        """Ask everything. May never return."""
        try:
            handle = call("nvmlDeviceGetHandleByIndex", self.index)
            self._device = _Device(handle, self._doing)
            self._device.read()
        except Refused as refused:
            self.forbidden = self._device is None and refused.code == NO_PERMISSION
            self._lost = refused

    def gpu(self, unfinished: str | None = None) -> Gpu:
        """What is known now; `unfinished` is the GPU's error where `read` has not returned."""
        lost = self._lost or Refused(unfinished or "")
        nothing: dict[str, Any] = dict.fromkeys(Gpu.model_fields)
        nothing |= {"link": _NO_LINK, "mig_slices": ()}
        found = dict(self._device.found) if self._device else {}
        return Gpu(
            **{
                **nothing,
                **found,
                "index": self.index,
                "unanswered": dict(self._device.unanswered) if self._device else {},
                "error_code": lost.code,
                "error": lost.why or None,
            }
        )

    def _doing(self, name: str) -> None:
        self.step = name


class _Device:
    """The questions. Raises Refused only where the GPU as a whole does not answer."""

    def __init__(self, handle: Any, doing: Doing) -> None:
        self._handle, self._doing = handle, doing
        self.found: dict[str, Any] = {}
        self.unanswered: dict[str, str] = {}

    def read(self) -> None:
        # The UUID is what a GPU is used by: without it all the rest is worth nothing.
        self._ask("uuid", lambda: text(self._call("nvmlDeviceGetUUID")), vital=True)
        self._ask("pci_bus_id", lambda: bus_id(self._call("nvmlDeviceGetPciInfo").busId))
        self._ask("name", lambda: text(self._call("nvmlDeviceGetName")))
        self._ask("compute_capability", self._capability)
        self._link()
        self._ask("numa_node", self._numa_node)
        self._ask("compute_mode", partial(self._named, _COMPUTE_MODES, "nvmlDeviceGetComputeMode"))
        if self._ask("mig", lambda: number(self._call("nvmlDeviceGetMigMode")[0]) > 0):
            self.found["mig_slices"] = self._ask("mig_slices", self._mig_slices) or ()
        self._ask("c2c", self._c2c, self._c2c_links)
        mode = "nvmlDeviceGetVirtualizationMode"
        self._ask("virtualization", partial(self._named, _VIRTUALIZATION, mode))
        self._ask("fabric", *(partial(self._fabric, form) for form in _FABRIC_FORMS))
        self._memory()
        self._integrated()
        self._ask("processes", *(partial(self._pids, name) for name in _PROCESS_LISTS))

    def _call(self, name: str, *arguments: Any) -> Any:
        self._doing(name)
        return call(name, self._handle, *arguments)

    def _ask(self, field: str, *forms: Callable[[], Any], vital: bool = False) -> Any:
        self.found[field] = self._answer(field, *forms, vital=vital)
        return self.found[field]

    def _answer(self, field: str, *forms: Callable[[], Any], vital: bool = False) -> Any:
        """The answer of the first form of a question that driver and binding both understand."""
        for form in forms:
            try:
                answer = form()
            except Refused as refused:
                missing = refused.code in (None, NOT_SUPPORTED, FUNCTION_NOT_FOUND)
                if refused.code in _LOST or (vital and not missing):
                    raise
                self.unanswered[field] = refused.why
                if refused.code not in _TRY_ANOTHER_FORM:
                    break
            except Exception as error:  # a binding of another time answers in another shape
                self.unanswered[field] = f"{type(error).__name__}: {error}"
            else:
                self.unanswered.pop(field, None)
                return answer
        return None

    def _named(self, names: Mapping[int, Any], question: str) -> Any:
        answer = self._call(question)
        if answer not in names:
            raise Refused(f"unknown value {answer}")
        return names[answer]

    def _capability(self) -> str:
        major, minor = self._call("nvmlDeviceGetCudaComputeCapability")
        return f"{number(major)}.{number(minor)}"

    def _link(self) -> None:
        # Piece by piece: what was answered stands when the next question is not.
        self.found["link"] = _NO_LINK
        for part, question in LINK.items():
            ask = self._width if part.endswith("width") else self._positive
            answer = self._answer(f"link.{part}", partial(ask, question))
            self.found["link"] = self.found["link"].model_copy(update={part: answer})

    def _positive(self, question: str) -> int:
        return positive(self._call(question))

    def _width(self, question: str) -> int:
        return lanes(self._call(question))

    def _numa_node(self) -> int:
        scope = constant("NVML_AFFINITY_SCOPE_NODE")
        words = self._call("nvmlDeviceGetMemoryAffinity", _NODE_WORDS, scope)
        nodes = [
            64 * place + bit
            for place, word in enumerate(words)
            for bit in range(64)
            if word >> bit & 1
        ]
        if len(nodes) != 1:
            raise Refused(f"{len(nodes)} nodes are named")
        return nodes[0]

    def _mig_slices(self) -> tuple[str, ...]:
        slices = []
        for place in range(number(self._call("nvmlDeviceGetMaxMigDeviceCount"))):
            try:
                device = self._call("nvmlDeviceGetMigDeviceHandleByIndex", place)
                slices.append(text(call("nvmlDeviceGetUUID", device)))
            except Refused as refused:
                # Else not found: no slice in this place; or no permission: another's slice.
                if refused.code in _LOST:
                    raise
        return tuple(slices)

    def _c2c(self) -> bool:
        return bool(self._call("nvmlDeviceGetC2cModeInfoV").isC2cEnabled)

    def _c2c_links(self) -> bool:
        (links,) = self._call("nvmlDeviceGetFieldValues", [constant("NVML_FI_DEV_C2C_LINK_COUNT")])
        if links.nvmlReturn:
            raise Refused(error_name(links.nvmlReturn), links.nvmlReturn)
        return number(links.value.uiVal) > 0

    def _fabric(self, form: str) -> str:
        info = constant(form)()
        self._call("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info))
        if info.state not in _FABRIC:
            raise Refused(f"unknown value {info.state}")
        # nvml.h: the status means something only in this state.
        failed = info.state == _FABRIC_COMPLETED and info.status
        return _FABRIC[info.state] + (f", but {error_name(info.status)}" if failed else "")

    def _memory(self) -> None:
        total, used = "memory_total_gib", "memory_used_gib"
        question = "nvmlDeviceGetMemoryInfo"
        info = self._answer(used, lambda: self._call(question, constant("nvmlMemory_v2")))
        if info is not None:
            self._ask(used, lambda: gib(number(info.used)))
            self._ask(total, lambda: gib(positive(info.total)))
        elif self._ask(total, lambda: gib(positive(self._call(question).total))) is not None:
            self.unanswered[used] = "told with the driver's reserve only"

    def _integrated(self) -> None:
        known = self.found["compute_capability"] in _INTEGRATED
        # A GPU without memory of its own has no answer to how much it has.
        if not known and self.found["memory_total_gib"] is None:
            self.found["integrated"] = None
            self.unanswered["integrated"] = self.unanswered["memory_total_gib"]
        else:
            self.found["integrated"] = known

    def _pids(self, question: str) -> tuple[int, ...]:
        pids = sorted({process.pid for process in self._call(question)})
        if pids and pids[-1] > _MOST_PIDS:
            raise Refused("not pids: the binding misreads the list")
        return tuple(pids)


def bus_id(nvml: str | bytes) -> str:
    """NVML's "00000000:1B:00.0" as sysfs writes it: "0000:1b:00.0".

    Raises:
        Refused: it is something else.
    """
    match = _BUS_ID.fullmatch(text(nvml))
    if match is None:
        raise Refused("not a bus id")
    return f"{int(match[1], 16):04x}:{match[2].lower()}"
