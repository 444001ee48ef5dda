"""Makers of records for tests: a healthy machine, a usual job, the shipped limits."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from preflight import checks
from preflight.facts import Cpu, Facts, Memory, Pressure, Processes, Shm, System, Torch
from preflight.gpu_facts import Gpu, GpuHost, Nvml, PcieLink
from preflight.job import Job
from preflight.settings import Request, Settings, resolve

SHIPPED = Path(__file__).parents[1] / "thresholds"


@cache
def settings(thresholds: str = "cpu") -> Settings:
    """A shipped threshold set."""
    limits = {id: check.limits for id, check in checks.discover().items()}
    return resolve(Request(thresholds=thresholds), limits, SHIPPED)


def limits(check: str, **changes: Any) -> Any:
    """The cpu set's limits of a check, changed."""
    return settings().limits[check].model_copy(update=changes)


def facts(**changes: Any) -> Facts:
    """A quiet 8-CPU machine with 32 GiB and 16 GiB of /dev/shm."""
    healthy = Facts(
        cpu=Cpu(
            online=8, affinity=8, quota=None, effective=8.0, from_="online CPUs", period_s=None,
            weight=None, request=None, steal_percent=0.0, load_1m=0.1,
        ),
        memory=Memory(
            limit_gib=None, headroom_gib=30.0, from_="MemAvailable", total_gib=32.0,
            available_gib=30.0,
        ),
        shm=Shm(
            size_gib=16.0, free_gib=16.0, fs_type="tmpfs", read_only=False, stale_gib=0.0,
            stale_files=(),
        ),
        processes=Processes(
            pids_max=None, pids_current=None, nproc=None, nofile=65536, memlock_bytes=None
        ),
        pressure=Pressure(cpu=0.0, memory=0.0, io=0.0),
        system=System(kernel="6.1", machine="x86_64", cgroup="v2", container=None, numa_nodes=1),
        gpu_host=GpuHost(kernel_module=None, device_nodes=(), pci_gpus=()),
        torch=None, environment={},
    )  # fmt: skip
    return healthy.model_copy(update=changes)


def gpu(index: int = 0, **changes: Any) -> Gpu:
    """A healthy, idle H100 SXM on a Gen5 x16 link."""
    link = PcieLink(gen=5, width=16, max_gen=5, max_width=16, gpu_max_gen=5)
    healthy = Gpu(
        index=index, uuid=f"GPU-{index:08x}-0000-0000-0000-000000000000",
        name="NVIDIA H100 80GB HBM3", pci_bus_id=f"0000:{0x1b + index:02x}:00.0",
        compute_capability="9.0", link=link, numa_node=0, compute_mode="default", mig=False,
        mig_slices=(), c2c=False, integrated=False, virtualization="none", fabric="completed",
        memory_total_gib=79.6, memory_used_gib=0.0, processes=(),
    )  # fmt: skip
    return healthy.model_copy(update=changes)


def gpu_facts(*gpus: Gpu, nvml: Nvml | None = None, **changes: Any) -> Facts:
    """A healthy node with these GPUs (one H100 when none are named), all of them ours."""
    gpus = gpus or (gpu(),)
    well = Nvml(
        state="ok", code=None, error=None, step=None, driver_version="580.95.05",
        cuda_version="13.0",
    )  # fmt: skip
    nodes = tuple(f"/dev/nvidia{gpu.index}" for gpu in gpus)
    host = GpuHost(
        kernel_module="580.95.05",
        device_nodes=("/dev/nvidia-uvm", *nodes, "/dev/nvidiactl"),
        pci_gpus=tuple(gpu.pci_bus_id or "" for gpu in gpus),
    )
    usual = {
        "gpus": gpus, "nvml": nvml or well, "node": "exclusive", "gpu_host": host,
        "torch": Torch(version="2.11.0+cu130", cuda="13.0"),
    }  # fmt: skip
    return facts(**{**usual, **changes})


def job(**changes: Any) -> Job:
    """The reference image job with four workers."""
    base = settings()
    usual = Job(
        sample=base.sample, loader=base.loader, stats=base.stats, consumer=base.consumer,
        workload=None, num_workers=4, ranks=1, data=None, data_state=None,
        gpu_sharing="exclusive", seed=1, max_read_gib=16.0,
    )  # fmt: skip
    loader = {key: changes.pop(key) for key in ("batch_size", "prefetch_factor") if key in changes}
    if loader:
        changes["loader"] = usual.loader.model_copy(update=loader)
    return usual.model_copy(update=changes)
