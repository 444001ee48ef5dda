"""Puts this process on the CPUs of the GPU's own NUMA node, where those may be used.

A page lies on the node of the CPU that touches it first, so this comes before host buffers are
made: a copy across the sockets is slow, and no fault of the link.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Literal

from preflight.machine.numa import cpus_by_node
from preflight.machine.root import Root

HostMemory = Literal["near", "far", "unknown"]


@dataclass(frozen=True)
class Placement:
    """Where host memory will lie, seen from the GPU."""

    host_memory: HostMemory
    allowed_cpus: str
    """The CPUs that were ours to choose from, as the kernel writes them: 0-15,32."""


def near_cpus(
    gpu_node: int | None, by_node: Mapping[int, Set[int]], allowed: Set[int]
) -> frozenset[int] | None:
    """The allowed CPUs on the GPU's node, possibly none; None where it cannot be told.

    A machine whose CPUs are all on one node has nothing far away. A GPU node without CPUs is the
    GPU's own memory (GH200), which says nothing of the host's.
    """
    with_cpus = {node: cpus for node, cpus in by_node.items() if cpus}
    if len(with_cpus) == 1:
        return frozenset(allowed)
    if gpu_node is None or gpu_node not in with_cpus:
        return None
    return frozenset(allowed) & frozenset(with_cpus[gpu_node])


def move_near(
    machine: Root,
    gpu_node: int | None,
    bind: Callable[[int, Set[int]], None] = os.sched_setaffinity,
) -> Placement:
    """Bind the calling thread, and so the threads it starts; nothing changes where it cannot."""
    allowed = machine.affinity()
    near = near_cpus(gpu_node, cpus_by_node(machine), allowed)
    if near is None:
        return Placement("unknown", ranges(allowed))
    if not near:
        return Placement("far", ranges(allowed))
    if near != allowed:
        try:
            bind(0, near)
        except OSError:  # forbidden by a sandbox
            return Placement("unknown", ranges(allowed))
    return Placement("near", ranges(allowed))


def ranges(cpus: Set[int]) -> str:
    """CPUs as the kernel writes them."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
