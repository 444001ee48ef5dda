"""Samples made on the spot, for a run without a data path: photo-like JPEGs, or random bytes.

Files go into a directory that the caller made, owns and removes; without one (a read-only
container) they stay in memory. numpy and Pillow are imported when images are made, not before.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight.data.image_folder import FileSource
from preflight.data.source import Source
from preflight.job import Codec, Sample

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

COUNT = 64
FILE_BYTES = 256 << 20
"""Most bytes that are written, unless two samples alone are more."""
MEMORY_BYTES = 32 << 20
"""The same without a directory: spawned workers each get a copy."""

# ImageNet's mean: 110 kB at about 500 x 375. Other sizes keep its bytes per pixel, so that the
# cost of decoding a byte stays that of a photo.
_PHOTO_BYTES, _PHOTO_WIDTH = 110_000, 500
_JPEG_BYTES = COUNT * _PHOTO_BYTES
_HEADER_BYTES = 620  # of a JPEG with the usual tables
_MIN_WIDTH, _MAX_WIDTH = 32, 8_000
_QUALITY = 90
_SIZE_TOLERANCE = 0.06
_SIZE_TRIES = 12
_FIRST_TEXTURE = 0.4


@dataclass(frozen=True)
class Generated:
    """Samples kept in memory."""

    contents: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.contents)

    def fetch(self, index: int) -> bytes:
        """The sample's bytes."""
        return self.contents[index]

    def name(self, index: int) -> str:
        """Its number: there is no file to look for."""
        return f"generated sample {index}"


def how_many(codec: Codec, encoded_bytes: int, limit_bytes: int = FILE_BYTES) -> int:
    """64 distinct samples; fewer, but at least 2, where they are large.

    Images are also held to the bytes of 64 usual ones: making a byte costs the same in any size.
    """
    if codec == "jpeg":
        limit_bytes = min(limit_bytes, _JPEG_BYTES)
    return max(2, min(COUNT, limit_bytes // encoded_bytes))


def generate(sample: Sample, seed: int, directory: str | None) -> Source:
    """Make distinct samples of about `sample.encoded_bytes` each, the same ones for the same seed.

    In `directory`, or in memory when it is None or has no room: then nothing is left in it. Images
    come within 10 % of the size asked for, from about 4 kB on; raw samples are exact.
    """
    if directory is not None:
        with suppress(OSError):
            return FileSource(_write(directory, _contents(sample, seed, FILE_BYTES), sample.codec))
    return Generated(tuple(_contents(sample, seed, MEMORY_BYTES)))


def _write(directory: str, contents: Iterable[bytes], codec: Codec) -> tuple[str, ...]:
    suffix = "jpg" if codec == "jpeg" else "bin"
    paths: list[Path] = []
    try:
        for number, content in enumerate(contents):
            paths.append(Path(directory, f"{number:04}.{suffix}"))
            paths[-1].write_bytes(content)
    except OSError:
        for path in paths:
            path.unlink(missing_ok=True)
        raise
    return tuple(map(str, paths))


def _contents(sample: Sample, seed: int, limit_bytes: int) -> Iterator[bytes]:
    import numpy as np

    count = how_many(sample.codec, sample.encoded_bytes, limit_bytes)
    if sample.codec == "jpeg":
        yield from _photos(count, sample.encoded_bytes, seed)
    else:
        for number in range(count):
            yield np.random.default_rng([seed, number]).bytes(sample.encoded_bytes)


def _photos(count: int, encoded_bytes: int, seed: int) -> Iterator[bytes]:
    import numpy as np

    scale = math.sqrt(max(encoded_bytes - _HEADER_BYTES, 1) / (_PHOTO_BYTES - _HEADER_BYTES))
    width = min(max(round(_PHOTO_WIDTH * scale), _MIN_WIDTH), _MAX_WIDTH)
    size = (width, width * 3 // 4)
    texture = _FIRST_TEXTURE
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        scene, noise = _scene(size, rng), _noise(size, rng)
        for _ in range(_SIZE_TRIES):
            data = _encode(scene, noise, texture)
            if abs(len(data) / encoded_bytes - 1) <= _SIZE_TOLERANCE:
                break
            # The next image starts from this one's texture: only the first one has to search.
            texture *= (encoded_bytes / len(data)) ** 1.5
        yield data


def _scene(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Smooth colours with sharp edges, float32 HWC."""
    import numpy as np
    from PIL import Image, ImageDraw

    width, height = size
    picture = _soft(size, 5, rng)
    draw = ImageDraw.Draw(picture)
    for _ in range(12):
        x, y = rng.uniform(-0.2, 0.9) * width, rng.uniform(-0.2, 0.9) * height
        box = (x, y, x + rng.uniform(0.1, 0.5) * width, y + rng.uniform(0.1, 0.5) * height)
        colour = tuple(rng.integers(0, 256, 3).tolist())
        shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
        shape(box, fill=colour)
    blended = Image.blend(picture, _soft(size, 40, rng), 0.3)
    return np.asarray(blended, dtype=np.float32)


def _soft(size: tuple[int, int], cells: int, rng: np.random.Generator) -> Image.Image:
    import numpy as np
    from PIL import Image

    coarse = rng.integers(0, 256, (cells * 3 // 4, cells, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def _noise(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Grain, strong in some places and weak in others as in a photo; float32 HW1, about +-128."""
    import numpy as np

    width, height = size
    grain = rng.integers(-128, 128, (height, width), dtype=np.int8)
    where = np.asarray(_soft(size, 8, rng).convert("L"), dtype=np.float32) / 255
    return (grain * where)[:, :, None]


def _encode(scene: np.ndarray[Any, Any], noise: np.ndarray[Any, Any], texture: float) -> bytes:
    import numpy as np
    from PIL import Image

    pixels = np.clip(scene + texture * noise, 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()
