"""Gathers the facts of this node: files and system calls only, nothing that may hang.

The records are in `preflight.facts` (pure); this file composes the readers of this folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.facts import Facts, System
from preflight.machine import builds, container, numa
from preflight.machine.cgroup import Cgroups, read_cgroups
from preflight.machine.cpu import read_cpu
from preflight.machine.memory import read_memory
from preflight.machine.mounts import read_mounts, read_shm
from preflight.machine.pci import read_gpu_host
from preflight.machine.pressure import read_pressure
from preflight.machine.processes import read_processes
from preflight.machine.root import Root

# All that ever leaves the environment for a report: anything else may be a secret.
ENVIRONMENT = (
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_DISABLE_REQUIRE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "NODE_NAME",
    "LOCAL_RANK",
    "SLURM_JOB_ID",
    "SLURM_LOCALID",
    "SLURMD_NODENAME",
    "KUBERNETES_SERVICE_HOST",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TMPDIR",
    "LD_LIBRARY_PATH",
)


def gather(root: Root, environ: Mapping[str, str]) -> Facts:
    """Read the node. Missing, hidden and odd files give None, never an exception."""
    mounts = read_mounts(root)
    cgroups = read_cgroups(root, mounts)
    return Facts(
        cpu=read_cpu(root, cgroups, environ),
        memory=read_memory(root, cgroups),
        shm=read_shm(root, mounts),
        processes=read_processes(root, cgroups),
        pressure=read_pressure(root, cgroups),
        system=_system(root, cgroups, environ),
        gpu_host=read_gpu_host(root),
        torch=builds.torch_build(),
        environment={name: environ.get(name) for name in ENVIRONMENT},
    )


def _system(root: Root, cgroups: Cgroups, environ: Mapping[str, str]) -> System:
    uname = root.uname()
    return System(
        kernel=uname.release,
        machine=uname.machine,
        cgroup=cgroups.kind,
        container=container.runtime(root, cgroups, environ),
        numa_nodes=numa.cpu_nodes(root),
        root=container.is_root(root),
    )
