"""The seed of a run: another one on every node, at every boot, at every start. Pure.

It orders what is read and sampled, so nodes of a fleet that start together must not read the same
files at the same time. It is no secret; every reading that used it has it.
"""

from __future__ import annotations

import hashlib


def seed_of(node: str, boot_id: str | None, at_ns: int) -> int:
    """32 bits of the node's name, its boot id (None where hidden) and the time in nanoseconds."""
    text = f"{node} {(boot_id or '').strip()} {at_ns}"
    return int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:4], "big")
