"""A disk that reads slowly: a loop device held to a rate by the kernel (cgroup v1 blkio, root)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_BLKIO = Path("/sys/fs/cgroup/blkio")


@dataclass(frozen=True)
class SlowDisk:
    """Where it is mounted, and how a command comes under its limit."""

    folder: Path
    wrapped: tuple[str, ...]


@contextmanager
def slow_disk(place: Path, source: Path, bytes_per_s: int) -> Iterator[SlowDisk]:
    """An ext4 of its own with what `source` holds, not in memory; skips where that is not to be."""
    if os.geteuid() != 0 or not (_BLKIO / "blkio.throttle.read_bps_device").exists():
        pytest.skip("a throttled loop device needs root and blkio of cgroup v1")
    image, folder, group = place / "image", place / "slow", _BLKIO / f"preflight-{os.getpid()}"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(200 << 20)
    device = ""
    try:
        try:
            _run("mkfs.ext4", "-q", "-F", str(image))
            device = _run("losetup", "-f", "--show", str(image))
            _run("mount", device, str(folder))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no loop device here: {error}")
        shutil.copytree(source, folder / "data")
        # Unmounted and mounted again, nothing of it is in memory.
        _run("umount", str(folder))
        _run("mount", device, str(folder))
        number = os.stat(device).st_rdev
        group.mkdir()
        limit = f"{os.major(number)}:{os.minor(number)} {bytes_per_s}"
        (group / "blkio.throttle.read_bps_device").write_text(limit)
        join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        yield SlowDisk(folder / "data", ("sh", "-c", join, "sh"))
    finally:
        subprocess.run(["umount", "-l", folder], capture_output=True)
        if device:
            subprocess.run(["losetup", "-d", device], capture_output=True)
        with suppress(OSError):
            group.rmdir()
        image.unlink()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
