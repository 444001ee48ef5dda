"""What a folder of a million files costs before its first sample, beside one of a thousand.

The files are empty ones of a tmpfs of our own where root may mount one, else of the temporary
folder: what is measured is the walk, which opens nothing. Time and memory are of a process that
does what a check's child does: the first look and the listing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.command import environment
from bench.table import Row, spread

_FEW, _MANY, _FOLDERS = 1_000, 1_000_000, 1_000
_RUNS = 5
_WALK = """
import resource, sys, time
from preflight.data.image_folder import list_images, look
began = time.perf_counter()
assert look(sys.argv[1]) == "ok"
paths = list_images(sys.argv[1]).paths
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(paths))
"""


def measure(repeat: int) -> list[Row]:
    """Seconds and megabytes more than the small folder costs; flat and in class folders."""
    rows = []
    for layout, folders in (("in 1,000 folders", _FOLDERS), ("in one folder", 1)):
        place = tempfile.mkdtemp(prefix="preflight-bench-")
        mounted = _mount(place)
        try:
            few, many = Path(place, "few"), Path(place, "many")
            _fill(few, _FEW, min(folders, 10))
            _fill(many, _MANY, folders)
            small = [_walk(few) for _ in range(_RUNS * repeat)]
            large = [_walk(many) for _ in range(_RUNS * repeat)]
        finally:
            if mounted:
                subprocess.run(["umount", "-l", place], check=True)
            shutil.rmtree(place)
        seconds = [more - median(s for s, _ in small) for more, _ in large]
        megabytes = [more - median(m for _, m in small) for _, more in large]
        where = "on a tmpfs" if mounted else "in the temporary folder"
        rows += [
            Row(f"1,000,000 files {layout}: time more", median(seconds), "s", at_most=2,
                note=f"{spread(seconds)}; {where}"),
            Row("  memory more", median(megabytes), "MB", at_most=150, note=spread(megabytes)),
        ]  # fmt: skip
    return rows


def _walk(folder: Path) -> tuple[float, float]:
    """Seconds, and the peak in megabytes, of a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", _WALK, str(folder)],
        stdout=subprocess.PIPE, text=True, check=True, env=environment(), timeout=120,
    )  # fmt: skip
    seconds, kib, _ = ran.stdout.split()
    return float(seconds), float(kib) * 1024 / 1e6


def _mount(place: str) -> bool:
    options = f"size=64m,nr_inodes={2 * _MANY}"
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place]
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def _fill(folder: Path, files: int, folders: int) -> None:
    for number in range(folders):
        inner = folder / f"{number:04}"
        inner.mkdir(parents=True)
        where = os.open(inner, os.O_RDONLY)
        for file in range(files // folders):
            os.close(os.open(f"{file:06}.jpg", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=where))
        os.close(where)
