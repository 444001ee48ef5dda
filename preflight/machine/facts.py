"""Gathers the facts of this node: files and system calls only, nothing that may hang.

The records are in `preflight.facts` (pure); this file composes the readers of this folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.facts import Facts
from preflight.machine.root import Root


def gather(root: Root, environ: Mapping[str, str]) -> Facts:
    """Read the node."""
    raise NotImplementedError
