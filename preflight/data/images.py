"""Encoded image bytes to pixels, and which errors mean that the bytes are at fault.

Full decode to RGB, as torchvision's ImageFolder does it: no draft mode, no half-decoded files. It
reads no file and changes no setting of Pillow.
"""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


class CorruptImage(Exception):
    """The bytes are not an image that can be decoded in full; the text says why."""


# What Pillow's readers raise on broken bytes: OSError for truncated and unknown files, SyntaxError
# for broken chunks and markers, the rest from fields that lead nowhere. MemoryError is not among
# them: it tells of the machine.
_BROKEN = (
    OSError,
    SyntaxError,
    ArithmeticError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


def decode(data: bytes) -> Image.Image:
    """All pixels of an image as RGB. Raises CorruptImage."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            rgb: Image.Image = image.convert("RGB")
            return rgb
    except _BROKEN as error:
        raise CorruptImage(f"{type(error).__name__}: {error}") from error
