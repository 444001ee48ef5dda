"""The inventory of this node's GPUs: taken in a process that may be lost, and read by its parent.

Every GPU is asked in a thread of its own, so that one that never answers costs nobody else's
answer. What is known is handed out at once, so that it stands if NVML hangs as a whole. What it
means for the node is judged elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal, cast

from preflight.ended import Ended
from preflight.gpu_facts import Gpu, GpuHost, Nvml, PcieLink
from preflight.machine import pci
from preflight.machine.nvml import count, start
from preflight.machine.nvml_gpu import GpuReading
from preflight.machine.root import Root

_TO_REPORT_S = 1.0  # of the limit: for saying which GPU did not answer

Sharing = Literal["exclusive", "shared"]


def inventory(
    root: Root,
    emit: Callable[[dict[str, Any]], None],
    progress: Callable[[str], None],
    limit_s: float,
) -> dict[str, Any]:
    """What NVML and the PCI bus tell: {"nvml": ..., "gpus": [...], "node": ...}, ready for JSON.

    `emit` is given the same with what is known so far, `progress` the name of each call that the
    whole of NVML may hang in. A GPU's own questions have what is left of `limit_s`: the first one
    starts the driver where it is not kept loaded, for all GPUs in turn.
    """
    deadline = time.monotonic() + limit_s - _TO_REPORT_S
    host = pci.read_gpu_host(root)
    nvml = start(progress)
    emit(_answer(nvml, (), None))
    if nvml.state == "ok":
        nvml, counted = count(nvml, progress)
    if nvml.state != "ok":
        return _answer(nvml, (), None)
    readings = [GpuReading(index) for index in range(counted)]
    progress(f"waiting for {counted} GPUs to answer NVML")
    waiting = set(readings)

    def known(error: str) -> dict[str, Any]:
        ours = [reading for reading in readings if not reading.forbidden]
        gpus = [
            reading.gpu(error.format(step=reading.step))
            if reading in waiting
            else _completed(root, reading.gpu())
            for reading in ours
        ]
        forbidden = len(readings) - len(ours)
        told = nvml.model_copy(update={"forbidden": forbidden})
        return _answer(told, gpus, node(host, gpus, forbidden=forbidden))

    emit(known("no answer: {step}"))
    for reading in _as_they_answer(readings, deadline):
        waiting.discard(reading)
        emit(known("no answer: {step}"))
    return known(f"no answer in {limit_s - _TO_REPORT_S:.0f} s: {{step}}")


def answered(ended: Ended, limit_s: float) -> tuple[Nvml, tuple[Gpu, ...], Sharing | None]:
    """What the end of the inventory's process says of NVML, of the GPUs, and of the node. Pure.

    The last partial answer stands, whatever came after it. `limit_s` is the time that it was given.
    """
    last = ended.answer or {"nvml": None, "gpus": [], "node": None}
    gpus = tuple(Gpu.model_validate(gpu) for gpu in last["gpus"])
    node = cast("Sharing | None", last["node"])
    nvml = None if last["nvml"] is None else Nvml.model_validate(last["nvml"])
    if nvml is not None and (
        ended.kind == "done"
        or nvml.state != "ok"
        # The GPUs that did not answer say so themselves, if they had their time.
        or (ended.kind == "timeout" and gpus and not ended.by_total)
    ):
        return nvml, gpus, node
    step = ended.last_progress or None
    had_its_time = ended.kind == "timeout" and not ended.by_total
    hangs = had_its_time and (step or "").startswith("nvml")
    unfinished = Nvml(
        state="no_answer" if hangs else "failed",
        code=None,
        error=_why(ended, limit_s),
        step=step,
        driver_version=nvml.driver_version if nvml else None,
        cuda_version=nvml.cuda_version if nvml else None,
    )
    return unfinished, gpus, node


def _why(ended: Ended, limit_s: float) -> str:
    stuck = ""
    if ended.abandoned_pid is not None:
        stuck = f", and process {ended.abandoned_pid} cannot be killed: it hangs in the kernel"
    if ended.kind == "timeout" and not ended.went:
        return f"the process that asks NVML did not get ready{stuck}"
    if ended.kind == "timeout" and ended.by_total:
        return f"the run's deadline came after {ended.seconds:.0f} s without an answer{stuck}"
    if ended.kind == "timeout":
        return f"no answer in {limit_s:.0f} s{stuck}"
    if ended.kind == "stopped":
        return f"stopped before NVML had answered{stuck}"
    signal = f" of signal {ended.exit_signal}" if ended.exit_signal else ""
    first_line = next(iter(ended.text.splitlines()), "")
    return first_line or f"the process that asks NVML died{signal}"


def node(host: GpuHost, gpus: Sequence[Gpu], forbidden: int) -> Sharing | None:
    """Whether all GPUs of the machine are ours, as far as files can tell.

    None where the bus is hidden or has no such GPUs (WSL, Jetson), where they are part of the
    host (GB10), and with MIG, whose other slices may be anyone's.
    """
    if forbidden or len(host.pci_gpus) > len(gpus):
        return "shared"
    unclear = "/dev/dxg" in host.device_nodes or any(gpu.mig or gpu.integrated for gpu in gpus)
    return None if unclear or len(host.pci_gpus) < len(gpus) or not gpus else "exclusive"


def _as_they_answer(readings: Sequence[GpuReading], deadline: float) -> Iterator[GpuReading]:
    """The readings in the order in which they are finished, until the deadline."""
    finished: SimpleQueue[GpuReading | Exception] = SimpleQueue()
    for reading in readings:
        Thread(target=_read, args=(reading, finished), daemon=True).start()
    for _ in readings:
        try:
            answer = finished.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return
        if isinstance(answer, Exception):
            raise answer
        yield answer


def _read(reading: GpuReading, finished: SimpleQueue[GpuReading | Exception]) -> None:
    try:
        reading.read()
    except Exception as error:  # our own mistake must not look like a GPU that does not answer
        finished.put(error)
    else:
        finished.put(reading)


def _completed(root: Root, gpu: Gpu) -> Gpu:
    """With what sysfs tells where NVML does not."""
    if gpu.error is not None or gpu.pci_bus_id is None:
        return gpu
    on_bus = pci.link(root, gpu.pci_bus_id)
    link = {
        part: value if value is not None else getattr(on_bus, part)
        for part, value in gpu.link.model_dump().items()
    }
    # NVML's width is the card's, whatever the slot has; the port's own is in sysfs.
    link["slot_width"] = pci.slot_width(root, gpu.pci_bus_id)
    if link["slot_width"] is not None and link["max_width"] is not None:
        link["max_width"] = min(link["max_width"], link["slot_width"])
    numa_node = gpu.numa_node
    if numa_node is None:
        numa_node = pci.numa_node(root, gpu.pci_bus_id)
    told = {f"link.{part}" for part, value in link.items() if value is not None}
    told |= {"numa_node"} if numa_node is not None else set()
    unanswered = {field: why for field, why in gpu.unanswered.items() if field not in told}
    changed = {"link": PcieLink(**link), "numa_node": numa_node, "unanswered": unanswered}
    return gpu.model_copy(update=changed)


def _answer(nvml: Nvml, gpus: Sequence[Gpu], node: str | None) -> dict[str, Any]:
    listed = [gpu.model_dump(mode="json") for gpu in gpus]
    return {"nvml": nvml.model_dump(mode="json"), "gpus": listed, "node": node}
