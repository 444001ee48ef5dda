"""Keeps the CPUs busy that the training process itself would take while it is fed.

One small process per CPU, of which a fraction may be asked; they belong to our own group, so that
they end with us and count as our own CPU time.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SLICE_S = 0.02  # well under a CFS period, so that a fraction is even over one block
_LOOP = f"""
import sys, time
busy = float(sys.argv[1]) * {_SLICE_S}
while True:
    end = time.perf_counter() + busy
    while time.perf_counter() < end: pass
    time.sleep({_SLICE_S} - busy)
"""


@contextmanager
def burning(host_cpus: float) -> Iterator[list[int]]:
    """Burn `host_cpus` CPUs until the block is left. Yields the pids that do it."""
    shares = [1.0] * int(host_cpus)
    if host_cpus % 1:
        shares.append(host_cpus % 1)
    processes = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", _LOOP, str(share)]) for share in shares
    ]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
