"""Writes an unlinked file into a tmpfs and reads it back. Leaves nothing behind, whatever happens.

Space is reserved first (posix_fallocate): a sparse file would raise SIGBUS at the touch of a page.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

_CHUNK_BYTES = 4 * 1024 * 1024


def write_and_read_back(folder: Path, size: int) -> tuple[int, str | None]:
    """Write `size` bytes and verify them.

    Returns the bytes verified, and what went wrong in the kernel's words or None.
    """
    try:
        fd, name = tempfile.mkstemp(prefix="preflight-", dir=folder)
    except OSError as error:
        return 0, os.strerror(error.errno or errno.EIO)
    try:
        Path(name).unlink()
        os.posix_fallocate(fd, 0, size)
        return _verify(fd, size)
    except OSError as error:
        return 0, os.strerror(error.errno or errno.EIO)
    finally:
        os.close(fd)


def _verify(fd: int, size: int) -> tuple[int, str | None]:
    pattern = os.urandom(_CHUNK_BYTES)
    written = 0
    while written < size:
        written += os.pwrite(fd, pattern[: size - written], written)
    for offset in range(0, size, _CHUNK_BYTES):
        expected = pattern[: size - offset]
        if os.pread(fd, len(expected), offset) != expected:
            return offset, "the bytes read back differ from those written"
    return size, None
