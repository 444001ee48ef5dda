"""Small image folders, good and corrupt."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image


def write_images(folder: Path, count: int, corrupt: int = 0) -> list[str]:
    """`count` JPEGs of 32 x 32 in two class folders, `corrupt` of them cut short; those names."""
    file = io.BytesIO()
    Image.effect_noise((32, 32), 60).convert("RGB").save(file, "JPEG")
    good, broken = file.getvalue(), []
    for number in range(count):
        path = folder / f"class{number % 2}" / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(good if number >= corrupt else good[:100])
        if number < corrupt:
            broken.append(path.name)
    return broken
