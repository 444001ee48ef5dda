import io
import os
import time
from pathlib import Path

import pytest
from PIL import Image

from preflight.data.generated import FILE_BYTES, MEMORY_BYTES, generate, how_many
from preflight.data.images import decode
from preflight.job import Sample

PHOTO = Sample(codec="jpeg", encoded_bytes=110_000, shape=(3, 224, 224), dtype="uint8")


def raw(encoded_bytes):
    return Sample(codec="raw", encoded_bytes=encoded_bytes, shape=(10,), dtype="uint8")


def contents(source):
    return [source.fetch(index) for index in range(len(source))]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    directory = tmp_path_factory.mktemp("photos")
    began = time.perf_counter()
    source = generate(PHOTO, 1, str(directory))
    print(f"64 images took {time.perf_counter() - began:.2f} s")
    return directory, source


def test_64_distinct_photos_of_the_size_asked_for(photos):
    directory, source = photos
    data = contents(source)
    assert len(set(data)) == 64
    assert {path.name for path in directory.iterdir()} == {
        Path(source.name(i)).name for i in range(64)
    }
    for content in data:
        assert abs(len(content) / 110_000 - 1) <= 0.1
        image = decode(content)
        assert abs(image.width - 500) <= 1
        assert abs(image.height - 375) <= 1


def test_an_image_is_neither_flat_nor_mere_noise(photos):
    _, source = photos
    for index in range(0, 64, 16):
        image = decode(source.fetch(index)).convert("L")
        low, high = image.resize((25, 19), Image.Resampling.BOX).getextrema()
        assert high - low > 60, "noise alone averages out to grey"
        smaller = io.BytesIO()
        image.resize((125, 94), Image.Resampling.BOX).save(smaller, "JPEG", quality=90)
        assert len(smaller.getvalue()) < 110_000 / 8, "noise does not shrink with its picture"


@pytest.mark.parametrize("encoded_bytes", [4_000, 30_000, 250_000])
def test_other_sizes_are_met_too(encoded_bytes):
    sample = PHOTO.model_copy(update={"encoded_bytes": encoded_bytes})
    data = contents(generate(sample, 2, None))
    assert len(set(data)) == len(data) == how_many("jpeg", encoded_bytes)
    for content in data:
        decode(content)
        assert abs(len(content) / encoded_bytes - 1) <= 0.1


def test_the_seed_decides():
    sample = PHOTO.model_copy(update={"encoded_bytes": 3_000})
    first, again, other = (contents(generate(sample, seed, None)) for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)


def test_raw_samples_are_exact_and_distinct(tmp_path):
    source = generate(raw(1000), 1, str(tmp_path))
    data = contents(source)
    assert {len(content) for content in data} == {1000}
    assert len(set(data)) == 64
    assert data == contents(generate(raw(1000), 1, None))


def test_large_samples_are_few():
    assert how_many("raw", 4 << 20) == 64
    assert how_many("raw", 5 << 20) * (5 << 20) <= FILE_BYTES
    assert how_many("raw", 5 << 20, MEMORY_BYTES) * (5 << 20) <= MEMORY_BYTES
    assert how_many("raw", 1 << 30) == 2
    assert how_many("jpeg", 110_000) == 64
    assert how_many("jpeg", 5_000_000) == 2


def test_stays_in_memory_without_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = generate(raw(100), 1, None)
    assert source.name(3) == "generated sample 3"
    assert not os.listdir(tmp_path)


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    write = Path.write_bytes

    def fill_up(path, data):
        if path.name == "0005.bin":
            write(path, data[:10])
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", fill_up)
    source = generate(raw(100), 1, str(tmp_path))
    assert len(source) == 64
    assert len(source.fetch(5)) == 100
    assert not os.listdir(tmp_path)


def test_a_directory_that_went_away_is_no_error(tmp_path):
    assert len(generate(raw(100), 1, str(tmp_path / "gone"))) == 64
