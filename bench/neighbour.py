"""Somebody else on the machine: keeps one CPU busy, then not, for random times.

    python bench/neighbour.py SEED

Each stretch lasts two seconds on average (exponential). It ends when its parent has.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

MEAN_S = 2.0


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many of them, each on its own, until the block is left."""
    processes = [
        subprocess.Popen([sys.executable, __file__, str(random.getrandbits(32))])
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def main() -> None:
    rng, parent = random.Random(int(sys.argv[1])), os.getppid()
    busy = rng.random() < 0.5
    while os.getppid() == parent:
        stretch_s = rng.expovariate(1 / MEAN_S)
        if busy:
            end = time.monotonic() + stretch_s
            while time.monotonic() < end:
                pass
        else:
            time.sleep(stretch_s)
        busy = not busy


if __name__ == "__main__":
    main()
