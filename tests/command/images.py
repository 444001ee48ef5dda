"""Small image folders, good and corrupt."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image


def write_images(folder: Path, count: int, corrupt: int = 0) -> list[str]:
    """`count` JPEGs of 32 x 32 in two class folders, `corrupt` of them cut short; those names.

    The corrupt ones lie apart: the loader gives up after many in a row.
    """
    file = io.BytesIO()
    Image.effect_noise((32, 32), 60).convert("RGB").save(file, "JPEG")
    good = file.getvalue()
    broken: list[str] = []
    every = count // corrupt if corrupt else count + 1
    for number in range(1, count + 1):
        path = folder / f"class{number % 2}" / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        bad = number % every == 0 and len(broken) < corrupt
        path.write_bytes(good[:100] if bad else good)
        if bad:
            broken.append(path.name)
    return broken
