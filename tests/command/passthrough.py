"""A FUSE file system that passes through to a folder and is slow or hangs on command.

Run as: passthrough.py SOURCE MOUNTPOINT CONTROL. CONTROL is a JSON file, read at each operation:
{"hang": ["read"], "delay": {"create": 0.5}}.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mfusepy import FUSE, FuseOSError, Operations

_STAT = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")


def _translated(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        try:
            return function(*given)
        except OSError as error:
            raise FuseOSError(error.errno or errno.EIO) from None

    return call


class Passthrough(Operations):
    """Every operation first waits as the control file says."""

    use_ns = True

    def __init__(self, source: str, control: str) -> None:
        self._source, self._control = source, Path(control)

    def __call__(self, operation: str, path: str, *given: Any) -> Any:
        self._wait(operation)
        return _translated(getattr(self, operation))(self._source + path, *given)

    def _wait(self, operation: str) -> None:
        while operation in (orders := self._orders()).get("hang", ()):
            time.sleep(0.05)
        time.sleep(orders.get("delay", {}).get(operation, 0))

    def _orders(self) -> dict[str, Any]:
        try:
            orders: dict[str, Any] = json.loads(self._control.read_text())
        except (OSError, ValueError):
            return {}
        return orders

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        status = os.lstat(path)
        times = {f"st_{t}time": getattr(status, f"st_{t}time_ns") for t in "amc"}
        return {**{name: getattr(status, name) for name in _STAT}, **times}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(path)]

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(path, length)

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rename(self, path: str, new: str) -> None:
        os.rename(path, self._source + new)

    def release(self, path: str, fh: int) -> None:
        os.close(fh)


if __name__ == "__main__":
    source, mountpoint, control = sys.argv[1:]
    FUSE(Passthrough(source, control), mountpoint, foreground=True, nothreads=False)
