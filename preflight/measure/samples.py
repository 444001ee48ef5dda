"""Finds or makes the samples that a measurement loads, and gives up on a folder that hangs.

The listing runs in a thread of its own: a file system that does not answer holds up that thread,
not the process, which then says so.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from preflight.checks.contract import Unit
from preflight.data.generated import generate
from preflight.data.image_folder import FileSource, Listing, list_images
from preflight.data.source import Source
from preflight.diagnosis.data_paths import ANSWER_LIMIT_S
from preflight.job import Codec, DataState

_POLL_S = 0.05


@dataclass(frozen=True)
class Found:
    """The samples, or why there are none."""

    state: DataState | None
    """None for generated samples."""
    source: Source | None
    complete: bool = False
    """There are no other samples in the data path than these."""


def find(unit: Unit) -> Found:
    """The data path's files, or generated samples where no path was given."""
    if unit.job.data is None:
        unit.progress("generating images" if unit.job.sample.codec == "jpeg" else "generating data")
        folder = unit.scratch.make()
        source = generate(unit.job.sample, unit.job.seed, None if folder is None else str(folder))
        return Found(None, source)
    unit.progress(f"listing {unit.job.data}")
    # A data set of the job's own may read any kind of file.
    listing = _list(unit.job.data, unit.job.sample.codec if unit.job.dataset is None else "raw")
    if listing is None:
        return Found("no_answer", None)
    if listing.paths:
        return Found("ok", FileSource(listing.paths), listing.complete)
    if listing.unreadable_folders:
        return Found("unreadable", None)
    return Found("no_image" if listing.other_files else "empty", None)


def _list(path: str, codec: Codec) -> Listing | None:
    """The listing; None when the file system went silent for ANSWER_LIMIT_S."""
    answers: list[Listing] = []
    errors: list[Exception] = []
    beat = time.monotonic()

    def note(entries: int) -> None:
        nonlocal beat
        beat = time.monotonic()

    def work() -> None:
        try:
            answers.append(list_images(path, codec=codec, on_progress=note))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_S)
        if thread.is_alive() and time.monotonic() - beat > ANSWER_LIMIT_S:
            return None
    if errors:
        raise errors[0]
    return answers[0]
