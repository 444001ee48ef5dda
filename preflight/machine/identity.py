"""How the report names this machine."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.machine.root import Root
from preflight.model import Node

# In a container the host name is the pod's or container's, which no operator can drain.
_VARIABLES = ("NODE_NAME", "SLURMD_NODENAME")


def node(root: Root, environ: Mapping[str, str]) -> Node:
    """The node's name by NODE_NAME (downward API), SLURMD_NODENAME, else the host name."""
    hostname = root.uname().hostname
    for variable in _VARIABLES:
        name = environ.get(variable, "").strip()
        if name:
            return Node(name=name, name_from=variable, hostname=hostname)
    return Node(name=hostname, name_from="host name", hostname=hostname)
