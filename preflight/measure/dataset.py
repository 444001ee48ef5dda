"""The dataset and sampler of our own measurements: one sample's work, as a training job does it.

The loader check and the hand-written loop it is compared with share this code. It is numpy and
Pillow only, so that one sample costs one thread. It counts corrupt samples and judges nothing.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, Sampler, get_worker_info

from preflight.data.images import CorruptImage, decode
from preflight.data.source import Source
from preflight.job import Sample
from preflight.measure.counters import Counters

MAX_CORRUPT_IN_A_ROW = 16
"""So many bad samples in a row are not a few bad files: the data are not what was said."""

# Random-resized crop as in "Going deeper with convolutions" (2014), section 6.
_SCALE = (0.08, 1.0)
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))
_CROP_TRIES = 10
# Mean and standard deviation of ImageNet's channels, for values from 0 to 1.
_MEAN = np.array((0.485, 0.456, 0.406), dtype=np.float32).reshape(3, 1, 1)
_STD = np.array((0.229, 0.224, 0.225), dtype=np.float32).reshape(3, 1, 1)
_INDICES_AT_ONCE = 1 << 16


class CorruptData(Exception):
    """Too many samples in a row could not be decoded; the text names one and says what to do."""


def transform(
    image: Image.Image, shape: Sequence[int], dtype: str, rng: random.Random
) -> torch.Tensor:
    """Random-resized crop to `shape` (channels 1 or 3, height, width), flip, CHW tensor of `dtype`.

    Floating-point types are normalised with ImageNet's mean and standard deviation (one channel:
    their averages); integer types keep 0 to 255.
    """
    channels, height, width = shape  # `Sample` has seen to it
    image = image.resize((width, height), Image.Resampling.BILINEAR, _crop_box(image.size, rng))
    if channels == 1:
        image = image.convert("L")
    pixels = np.asarray(image).reshape(height, width, channels)
    if rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    planes = pixels.transpose(2, 0, 1)
    if not dtype.startswith("float"):
        return torch.from_numpy(planes.astype(dtype, order="C"))
    mean, std = (_MEAN, _STD) if channels == 3 else (_MEAN.mean(), _STD.mean())
    normalised = planes.astype(np.float32, order="C")
    normalised -= mean * 255
    normalised *= 1 / (std * 255)
    return torch.from_numpy(normalised.astype(dtype, copy=False))


def raw_tensor(data: bytes, shape: Sequence[int], dtype: str) -> torch.Tensor:
    """The bytes as a tensor: the first elements, repeated where there are too few.

    Raises CorruptImage when there is not one whole element.
    """
    kind, count = np.dtype(dtype), math.prod(shape)
    if len(data) < kind.itemsize:
        raise CorruptImage(f"{len(data)} bytes, less than one {dtype}")
    elements = np.frombuffer(data, kind, min(len(data) // kind.itemsize, count))
    whole = elements.copy() if len(elements) == count else np.resize(elements, count)
    return torch.from_numpy(whole.reshape(tuple(shape)))


class SampleDataset(Dataset[torch.Tensor]):
    """Fetch, decode and transform of one sample; the next one stands in for a corrupt one.

    Randomness follows torch's rule: each worker has its own seed, drawn by the loader; `seed` is
    for use without workers. Corrupt samples are counted and named in `counters`, if given.
    """

    def __init__(
        self, source: Source, sample: Sample, seed: int, counters: Counters | None = None
    ) -> None:
        if len(source) == 0:
            raise ValueError("there is no sample to load")
        self._source = source
        self._sample = sample
        self._seed = seed
        self._counters = counters
        self._rng: tuple[int, random.Random] | None = None

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> torch.Tensor:
        """One sample. Raises CorruptData, and OSError as the storage gives it."""
        for tried in range(MAX_CORRUPT_IN_A_ROW):
            at = (index + tried) % len(self._source)
            try:
                return self._load(at)
            except (CorruptImage, FileNotFoundError, PermissionError) as error:
                reason = str(error)
                if self._counters:
                    self._counters.slot(_worker_id()).corrupt(self._source.name(at))
        raise CorruptData(
            f"{MAX_CORRUPT_IN_A_ROW} samples in a row could not be read as {self._sample.codec}, "
            f"the last was {self._source.name(at)} ({reason}): open it by hand; if it is good, the "
            "codec or the data path of this run is not the job's"
        )

    def _load(self, index: int) -> torch.Tensor:
        data = self._source.fetch(index)
        if self._sample.codec == "raw":
            return raw_tensor(data, self._sample.shape, self._sample.dtype)
        return transform(decode(data), self._sample.shape, self._sample.dtype, self._own_rng())

    def _own_rng(self) -> random.Random:
        """A generator of this process: one that came through a fork would be every worker's."""
        if self._rng is None or self._rng[0] != os.getpid():
            worker = get_worker_info()
            self._rng = os.getpid(), random.Random(worker.seed if worker else self._seed)
        return self._rng[1]


class EndlessShuffle(Sampler[int]):
    """One rank's part of all indices in random order, one epoch after the other for ever.

    A loader that never ends never stops its workers and never drains its queues. Ranks with the
    same seed share each epoch as torch's DistributedSampler does: every ranks-th index, from the
    start again where the last round is not full.
    """

    def __init__(self, count: int, seed: int, rank: int = 0, ranks: int = 1) -> None:
        if count < 1:
            raise ValueError("there is nothing to shuffle")
        self._count = count
        self._seed = seed
        self._rank, self._ranks = rank, ranks

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed)
        share = -(-self._count // self._ranks)
        while True:
            order = torch.randperm(self._count, generator=generator)
            own = order[self._rank :: self._ranks]
            # Not all at once: as Python's numbers, a hundred million indices are gigabytes.
            for start in range(0, len(own), _INDICES_AT_ONCE):
                yield from own[start : start + _INDICES_AT_ONCE].tolist()
            if len(own) < share:
                yield int(order[(self._rank + len(own) * self._ranks) % self._count])


def _crop_box(size: tuple[int, int], rng: random.Random) -> tuple[int, int, int, int]:
    """A random part of the image; all of it where no part of such a form fits."""
    width, height = size
    for _ in range(_CROP_TRIES):
        area = width * height * rng.uniform(*_SCALE)
        ratio = math.exp(rng.uniform(*_LOG_RATIO))
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left = rng.randint(0, width - crop_width)
            top = rng.randint(0, height - crop_height)
            return left, top, left + crop_width, top + crop_height
    return 0, 0, width, height


def _worker_id() -> int:
    worker = get_worker_info()
    return worker.id if worker else 0
