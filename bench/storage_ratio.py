"""Does the storage check read as fast as fio? Same files, pattern and readers, in turn.

fio opens one file at a time, reads it with one call and closes it, as our readers do; the files'
numbers are drawn, so that its order of numbers is a random order on the disk. Cold turns begin with
all pages advised out of memory. Turns are compared as ratios of medians.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.table import Row, ratio_of_medians, spread
from preflight import checks
from preflight.job import Stats
from preflight.machine.facts import gather
from preflight.machine.root import host
from preflight.measure.fetching import FetchResult, Readers
from preflight.settings import SHIPPED, Request, resolve

_READERS = min(8, 2 * len(os.sched_getaffinity(0)))
_SIZES = {110_000: 500, 8_000: 1500}
"""By bytes of a file: files of one reader. An ImageNet photo, and a thumbnail, where what Python
takes for a file shows beside what the kernel takes: information, without a bound."""
_PHOTO = 100_000
_TURNS = 7
_WARM_S = 1.0


def measure(repeat: int) -> list[Row]:
    """For each size: first touch and warm, as ratios to fio's."""
    if shutil.which("fio") is None:
        return [Row("storage / fio", None, note="no fio here (Debian: apt-get install fio)")]
    rows = []
    for size, files in _SIZES.items():
        with tempfile.TemporaryDirectory(prefix="preflight-bench-", dir="/var/tmp") as folder:
            rows += _rows(folder, size, files, _TURNS * repeat)
    return rows


def _rows(folder: str, size: int, files: int, turns: int) -> list[Row]:
    paths = _write(folder, size, files)
    stats = _stats()
    cold: dict[str, list[float]] = {"fio": [], "ours": []}
    warm: dict[str, list[float]] = {"fio": [], "ours": []}
    loops = 1
    for _ in range(turns):
        _drop(paths)
        cold["fio"].append(_fio(folder, size, files, 1))
        _drop(paths)
        first, again = _ours(paths, stats)
        if first.hit_percent is None or first.hit_percent > 5:
            raise RuntimeError(f"{first.hit_percent} % of the cold reads came from memory")
        cold["ours"].append(per_s(first))
        warm["ours"].append(per_s(again))
        loops = max(1, round(again.samples / len(paths)))
        warm["fio"].append(_fio(folder, size, files, loops))
    kb, readers = f"{size / 1000:g} kB", f"{_READERS} readers, {turns} turns each"
    rows = []
    for name, rates, least in (("first touch", cold, 0.95), ("warm", warm, 0.90)):
        rows += [
            Row(f"{name} / fio, {kb} files", ratio_of_medians(rates["ours"], rates["fio"]),
                at_least=least if size >= _PHOTO else None, note=readers),
            Row("  preflight's median", median(rates["ours"]), "/s", note=spread(rates["ours"])),
            Row("  fio's median", median(rates["fio"]), "/s", note=spread(rates["fio"])),
        ]  # fmt: skip
    return rows


def per_s(result: FetchResult) -> float:
    """Samples per second over a whole pass, as fio counts them."""
    return result.samples / result.seconds


def fio_rate(output: str, size: int) -> float:
    """Files per second of all jobs in fio's JSON: the sum of what each had while it ran."""
    jobs = json.loads(output[output.index("{") :])["jobs"]
    return float(sum(job["read"]["bw_bytes"] for job in jobs) / size)


def _fio(folder: str, size: int, files: int, loops: int) -> float:
    command = [
        "fio", "--name=files", f"--directory={folder}", "--filename_format=$jobnum.$filenum",
        f"--numjobs={_READERS}", f"--nrfiles={files}", f"--filesize={size}", f"--bs={size}",
        "--rw=randread", "--ioengine=psync", "--openfiles=1", "--file_service_type=sequential",
        "--invalidate=0", "--fadvise_hint=0", "--allow_file_create=0", f"--loops={loops}",
        "--output-format=json",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return fio_rate(ran.stdout, size)


def _ours(paths: Sequence[str], stats: Stats) -> tuple[FetchResult, FetchResult]:
    cpu = gather(host(), os.environ).cpu
    with Readers(paths, _READERS, machine=host(), cpu=cpu, stats=stats, seed=1) as readers:
        first = readers.first_touch(60, max_bytes=1 << 40)
        # The second touch of a page moves it to the active list; fio comes after that, too.
        readers.again(_WARM_S / 2, max_bytes=1 << 40)
        return first, readers.again(_WARM_S, max_bytes=1 << 40)


def _write(folder: str, size: int, files: int) -> list[str]:
    names = [f"{job}.{number}" for job in range(_READERS) for number in range(files)]
    random.Random(1).shuffle(names)
    paths = [str(Path(folder, name)) for name in names]
    for path in paths:
        with open(path, "wb") as file:
            file.write(os.urandom(size))
    os.sync()
    return paths


def _drop(paths: Sequence[str]) -> None:
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _stats() -> Stats:
    limits = {id: check.limits for id, check in checks.discover().items()}
    return resolve(Request(thresholds="cpu"), limits, SHIPPED).stats
