"""Memory behind a descriptor: only its holders see it, it is in no folder, and goes with them."""

from __future__ import annotations

import ctypes
import os


def anonymous_file(name: str) -> int:
    """A descriptor of memory that only its holders see. Raises OSError."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    # Interpreters built for glibc before 2.27 lack it; the libc that torch 2.6 needs has it.
    libc = ctypes.CDLL(None, use_errno=True)
    close_on_exec = 1
    fd = int(libc.memfd_create(name.encode(), close_on_exec))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    return fd
