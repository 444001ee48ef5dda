"""Lines that a loader's workers leave for the process that started them, whatever becomes of them.

An anonymous file that everybody appends to: no lock, nothing in /dev/shm or a temporary directory.
"""

from __future__ import annotations

import contextlib
import os

from preflight.memfd import anonymous_file


class Notes:
    """The file. Workers open it as /proc/<main process>/fd/<n>, however they were started."""

    def __init__(self, path: str, fd: int | None) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    def create(cls) -> Notes:
        """An empty one, held open until this process ends. Raises OSError: no memory."""
        fd = anonymous_file("preflight-notes")
        return cls(f"/proc/{os.getpid()}/fd/{fd}", fd)

    def open(self) -> int | None:
        """A descriptor to append to, for a worker; None where it may not."""
        with contextlib.suppress(OSError):
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        return None

    def size(self) -> int:
        """Bytes written so far."""
        return 0 if self._fd is None else os.fstat(self._fd).st_size

    def read(self, since: int = 0) -> str:
        """What was written since it had `since` bytes."""
        if self._fd is None:
            return ""
        return os.pread(self._fd, max(0, self.size() - since), since).decode("utf-8", "replace")

    def __reduce__(self) -> tuple[type[Notes], tuple[str, None]]:
        return Notes, (self._path, None)
