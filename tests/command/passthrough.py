"""A FUSE file system that passes through to a folder and is slow or hangs on command.

Run as: passthrough.py SOURCE MOUNTPOINT CONTROL. CONTROL is a JSON file, read at each operation:
{"hang": ["read"], "delay": {"create": 0.5}}.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mfusepy import FUSE, FuseOSError, Operations

_STAT = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")


def _commanded(operation: Callable[..., Any]) -> Callable[..., Any]:
    """First wait as the control file says, then do it on the folder behind."""

    @functools.wraps(operation)
    def call(self: Passthrough, path: str, *given: Any) -> Any:
        self.wait(operation.__name__)
        try:
            return operation(self, self.source + path, *given)
        except OSError as error:
            raise FuseOSError(error.errno or errno.EIO) from None

    return call


class Passthrough(Operations):
    """The folder behind, with its answers held back."""

    use_ns = True

    def __init__(self, source: str, control: str) -> None:
        self.source, self._control = source, Path(control)

    def wait(self, operation: str) -> None:
        while operation in (orders := self._orders()).get("hang", ()):
            time.sleep(0.05)
        time.sleep(orders.get("delay", {}).get(operation, 0))

    def _orders(self) -> dict[str, Any]:
        try:
            orders: dict[str, Any] = json.loads(self._control.read_text())
        except (OSError, ValueError):
            return {}
        return orders

    @_commanded
    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        status = os.lstat(path)
        times = {f"st_{t}time": getattr(status, f"st_{t}time_ns") for t in "amc"}
        return {**{name: getattr(status, name) for name in _STAT}, **times}

    @_commanded
    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(path)]

    @_commanded
    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags)

    @_commanded
    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    @_commanded
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    @_commanded
    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    @_commanded
    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(path, length)

    @_commanded
    def chmod(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    @_commanded
    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)

    @_commanded
    def unlink(self, path: str) -> None:
        os.unlink(path)

    @_commanded
    def rename(self, path: str, new: str) -> None:
        os.rename(path, self.source + new)

    @_commanded
    def release(self, path: str, fh: int) -> None:
        os.close(fh)


if __name__ == "__main__":
    source, mountpoint, control = sys.argv[1:]
    FUSE(Passthrough(source, control), mountpoint, foreground=True, nothreads=False)
