"""NUMA nodes and the CPUs on each."""

from __future__ import annotations

import re

from preflight.machine.kernel_text import cpu_list
from preflight.machine.root import Root

_NODES = "/sys/devices/system/node"
_NODE_NAME = re.compile(r"node(\d{1,5})", re.ASCII)


def cpus_by_node(root: Root) -> dict[int, frozenset[int]]:
    """CPUs of every node by its number; a node of memory alone (CXL, GPU memory) has none.

    Empty where the kernel has no NUMA or hides it.
    """
    found = (_NODE_NAME.fullmatch(name) for name in root.list_dir(_NODES))
    return {
        int(match[1]): cpu_list(root.read_text(f"{_NODES}/{match[0]}/cpulist"))
        for match in found
        if match
    }


def cpu_nodes(root: Root) -> int:
    """How many nodes have CPUs; 1 where nothing is known, since there is one at least."""
    return sum(bool(cpus) for cpus in cpus_by_node(root).values()) or 1
