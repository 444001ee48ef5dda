"""Facts of this node, known before anything is measured. Pure records.

Units stand in the names. None means "asked, not answered here". `preflight.machine.facts.gather`
reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from preflight.gpu_facts import CudaDevice, Gpu, GpuHost, Nvml, cuda_devices


class Fact(BaseModel):
    """A frozen group of facts."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", populate_by_name=True)


class Cpu(Fact):
    """How much CPU this process may use."""

    online: int
    affinity: int = Field(description="CPUs in our affinity mask (cpuset included)")
    quota: float | None = Field(description="CPUs' worth of quota, lowest of the visible cgroups")
    effective: float = Field(description="min(affinity, quota), or bound_to")
    from_: str = Field(alias="from", description="what binds, e.g. 'cgroup v2 cpu.max'")
    period_s: float | None = Field(description="CFS period of the binding quota")
    weight: int | None = Field(description="cgroup v2 cpu.weight, v1 shares converted to it")
    request: float | None = Field(description="PREFLIGHT_CPU_REQUEST: CPUs the pod asked for")
    request_ignored: str | None = Field(
        default=None, description="why PREFLIGHT_CPU_REQUEST is not counted, where it is set"
    )
    bound_to: int | None = Field(
        default=None,
        description="CPUs a loader is measured on: the request, where no quota limits us",
    )
    steal_percent: float | None = Field(description="since boot")
    load_1m: float | None

    def binding_quota(self) -> float | None:
        """The quota where it, and not the affinity, is what limits us."""
        return self.quota if self.quota is not None and self.quota <= self.effective else None


class Memory(Fact):
    """How much memory this process may still use."""

    limit_gib: float | None = Field(description="lowest visible cgroup limit; None without one")
    headroom_gib: float
    from_: str = Field(alias="from")
    total_gib: float
    available_gib: float


class Shm(Fact):
    """/dev/shm as this process sees it."""

    size_gib: float
    free_gib: float
    fs_type: str
    read_only: bool
    stale_gib: float = Field(description="in files that were there before us")
    stale_files: tuple[str, ...] = Field(description="the largest of them, at most five")


class Processes(Fact):
    """Limits on processes and files. None is unlimited."""

    pids_max: int | None
    pids_current: int | None
    nproc: int | None
    nofile: int | None
    memlock_bytes: int | None

    def free(self) -> int | None:
        """Processes and threads that the cgroup still lets us start; None without a limit.

        RLIMIT_NPROC is not in it: it counts all of a user's processes, on the whole machine, and
        does not hold for root.
        """
        return None if self.pids_max is None else self.pids_max - (self.pids_current or 0)


class Pressure(Fact):
    """PSI some avg10 percent, whole machine or own cgroup; None where the kernel has none."""

    cpu: float | None
    memory: float | None
    io: float | None


class Torch(Fact):
    """The installed torch, read without importing it."""

    version: str
    cuda: str | None = Field(description="CUDA it was built with; None for a build without CUDA")
    hip: str | None = Field(default=None, description="ROCm it was built with")


class System(Fact):
    """Kernel and surroundings."""

    kernel: str
    machine: str
    cgroup: str = Field(description="v1, v2, hybrid or none")
    container: str | None = Field(description="docker, podman, kubernetes, ... or None")
    numa_nodes: int
    root: bool = Field(default=False, description="the host's UID 0, not a user namespace's own")


class Facts(Fact):
    """Everything known of the node before the first measurement."""

    cpu: Cpu
    memory: Memory
    shm: Shm | None = Field(description="None when /dev/shm is not mounted")
    processes: Processes
    pressure: Pressure
    system: System
    gpu_host: GpuHost
    nvml: Nvml | None = Field(default=None, description="None when no GPU was asked for")
    gpus: tuple[Gpu, ...] = Field(default=(), description="filled in by the inventory")
    node: Literal["exclusive", "shared"] | None = Field(
        default=None, description="shared: the PCI bus has GPUs that were not given to us"
    )
    torch: Torch | None
    environment: dict[str, str | None] = Field(description="an allow-list of variables")

    def cuda_devices(self) -> tuple[CudaDevice, ...]:
        """The devices that a training job here would get."""
        return cuda_devices(self.gpus, self.environment.get("CUDA_VISIBLE_DEVICES"))


@dataclass(frozen=True)
class Load:
    """Who used the CPUs so far, at one moment: cumulative seconds. The caller subtracts two."""

    at_s: float
    busy_s: float | None
    """Neither idle nor iowait nor steal, on the CPUs of our affinity; None where hidden."""
    steal_s: float | None
    own_cpu_s: float | None
    """CPU time of our processes, ended ones included; None when none could ever be read."""
    run_delay_s: Mapping[int, float | None]
    """By living process: its threads runnable and not running; None where hidden."""
