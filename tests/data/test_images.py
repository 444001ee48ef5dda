import io
import random
import warnings

import pytest
from PIL import Image, ImageFile

from preflight.data.images import CorruptImage, decode

GRADIENT = Image.linear_gradient("L").resize((60, 40)).convert("RGB")


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "PPM", "TIFF"])
def test_decodes_to_rgb_in_full(kind):
    image = decode(encoded(GRADIENT, kind))
    assert image.mode == "RGB"
    assert image.size == (60, 40)
    assert image.getpixel((30, 5))[0] < image.getpixel((30, 35))[0]


@pytest.mark.parametrize(
    ("mode", "kind"), [("L", "JPEG"), ("CMYK", "JPEG"), ("P", "PNG"), ("RGBA", "PNG"), ("1", "PNG")]
)
def test_other_modes_become_rgb(mode, kind):
    assert decode(encoded(GRADIENT.convert(mode), kind)).mode == "RGB"


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"no image at all", b"\0" * 5000])
def test_what_is_no_image_is_corrupt(data):
    with pytest.raises(CorruptImage, match="UnidentifiedImageError"):
        decode(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
def test_a_file_cut_short_is_corrupt(kind):
    data = encoded(GRADIENT, kind)
    with pytest.raises(CorruptImage):
        decode(data[: len(data) * 2 // 3])
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_an_image_of_absurd_size_is_corrupt():
    bomb = bytearray(encoded(GRADIENT, "BMP"))
    bomb[18:26] = (60_000).to_bytes(4, "little") * 2
    with pytest.raises(CorruptImage, match="DecompressionBombError"):
        decode(bytes(bomb))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "PPM", "TIFF"])
def test_broken_bytes_raise_nothing_else(kind):
    rng = random.Random(kind)
    data = encoded(GRADIENT, kind)
    corrupt = 0
    for _ in range(200):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 10)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            assert decode(bytes(broken)).mode == "RGB"
        except CorruptImage:
            corrupt += 1
    assert corrupt or kind in ("BMP", "PPM")


def test_says_nothing_about_good_images():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decode(encoded(GRADIENT, "JPEG"))
