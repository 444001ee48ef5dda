"""What is wrong with a data path that exists. Data, no logic."""

from __future__ import annotations

from typing import NamedTuple

from preflight.job import DataState
from preflight.outcome import Blame


class DataPathFault(NamedTuple):
    """Sentences for one state of a data path; `cause` holds {path}."""

    cause: str
    remedy: str
    blame: Blame


ANSWER_LIMIT_S = 5.0
"""A first look, or the next directory entry of a listing: later is no answer."""

DATA_PATHS: dict[DataState, DataPathFault] = {
    "no_answer": DataPathFault(
        f"{{path}} does not answer (within {ANSWER_LIMIT_S:.0f} s): a dead or hanging mount, or a "
        "file server that is down",
        "read it by hand (timeout 5 ls), then look at the mount, the file server and the network",
        Blame.SHARED,
    ),
    "unreadable": DataPathFault(
        "{path} cannot be read by this user",
        "mount it readable for the UID the container runs as, or run as the owner",
        Blame.SETUP,
    ),
    "empty": DataPathFault(
        "{path} is empty",
        "check that the volume is mounted where the job expects it: an empty folder is what an "
        "unmounted volume looks like",
        Blame.DATA,
    ),
    "not_a_folder": DataPathFault(
        "{path} is not a folder",
        "name the folder that holds the images",
        Blame.SETUP,
    ),
    "no_image": DataPathFault(
        "{path} holds no image file (.jpg .jpeg .png .webp .bmp .ppm .tif .tiff)",
        "name the folder that holds the images, or a folder above it",
        Blame.DATA,
    ),
}
