"""A hand-written training loop's loading half, as a user would write it: prints samples/s.

    python bench/plain_loop.py FOLDER WORKERS BATCH PREFETCH SECONDS

No counters, no watching: batches are counted where they arrive. The dataset is the same class that
the check loads with, so that only the loop differs.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from torch.utils.data import DataLoader

from preflight.data.image_folder import FileSource
from preflight.job import Sample
from preflight.measure.dataset import SampleDataset

WARM_UP_S = 1.0
# One epoch has to outlast the loop: its end would empty the queues.
_EPOCHS = 1000


def main() -> None:
    folder, *numbers = sys.argv[1:]
    workers, batch_size, prefetch, seconds = map(int, numbers)
    files = tuple(sorted(map(str, Path(folder).glob("*.jpg"))))
    sample = Sample(codec="jpeg", encoded_bytes=110_000, shape=(3, 224, 224), dtype="uint8")
    loader = DataLoader(
        SampleDataset(FileSource(files * _EPOCHS), sample, seed=0),
        batch_size=batch_size,
        shuffle=True,
        num_workers=workers,
        prefetch_factor=prefetch,
        persistent_workers=True,
        drop_last=True,
    )
    first_at = opened_at = None
    samples = 0
    for batch in loader:
        now = time.perf_counter()
        if opened_at is not None:
            samples += len(batch)
            if now - opened_at >= seconds:
                print(samples / (now - opened_at))
                return
        elif first_at is None:
            first_at = now
        elif now - first_at >= WARM_UP_S:
            opened_at = now
    raise RuntimeError("the epoch ended before the window")


if __name__ == "__main__":
    main()
