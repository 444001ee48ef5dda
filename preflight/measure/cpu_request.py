"""Binds this process to as many CPUs as the pod requested, where no quota holds it to fewer.

Without a quota a pod runs on whatever its neighbours leave idle, today. What it was promised is
the request, so a loader is measured on that many CPUs. Call it before torch is imported: its
threads and workers inherit the CPUs, and it counts them once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Set

from preflight.facts import Cpu
from preflight.machine.cpu import core_mates
from preflight.machine.root import Root


def bind_to_request(
    machine: Root,
    cpu: Cpu,
    seed: int,
    bind: Callable[[int, Set[int]], None] = os.sched_setaffinity,
) -> Cpu:
    """Bind the calling thread to `cpu.bound_to` CPUs; the facts as they hold for it from then on.

    The same `seed` gives the same CPUs: the ranks of a job share one request. Where a sandbox
    forbids binding, the facts are those of the whole affinity mask, and bound_to is None.
    """
    if cpu.bound_to is None:
        return cpu
    allowed = machine.affinity()
    chosen = choose(allowed, cpu.bound_to, core_mates(machine, allowed), seed)
    try:
        bind(0, chosen)
    except OSError:
        all_cpus = {"bound_to": None, "effective": float(len(allowed)), "from_": "affinity"}
        return cpu.model_copy(update=all_cpus)
    return cpu.model_copy(update={"affinity": len(chosen)})


def choose(
    allowed: Set[int], count: int, mates: Mapping[int, Set[int]], seed: int
) -> frozenset[int]:
    """`count` of the allowed CPUs, each on a core of its own as far as there are so many.

    Neighbouring ones, which mostly lie on one NUMA node, from a place that the seed draws: pods of
    one node that are judged at the same time would else all crowd onto the first CPUs.
    """
    order = sorted(allowed)
    start = random.Random(seed).randrange(len(order))
    alone: list[int] = []
    beside: list[int] = []
    taken: set[int] = set()
    for cpu in order[start:] + order[:start]:
        (beside if cpu in taken else alone).append(cpu)
        taken |= mates[cpu]
    return frozenset((alone + beside)[:count])
