import io
import itertools
import pickle
import random
from collections import Counter
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, DistributedSampler

from preflight.data.generated import Generated
from preflight.data.images import CorruptImage
from preflight.job import Sample
from preflight.measure.counters import Counters
from preflight.measure.dataset import (
    CorruptData,
    EndlessShuffle,
    SampleDataset,
    raw_tensor,
    transform,
)


def sample(codec="jpeg", shape=(3, 8, 8), dtype="uint8"):
    return Sample(codec=codec, encoded_bytes=1000, shape=shape, dtype=dtype)


def png(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


GREY_STEPS = tuple(png(Image.new("RGB", (20, 20), (n, n, n))) for n in range(100))


def picture():
    """Red grows to the right, green downwards: a crop's place and direction can be read from it."""
    ramp = np.arange(200, dtype=np.uint8)
    red, green = np.meshgrid(ramp, ramp)
    return Image.fromarray(np.stack([red, green, np.zeros_like(red)], axis=2))


@pytest.mark.parametrize("shape", [(3, 32, 48), (1, 32, 48)])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
def test_gives_a_contiguous_tensor_of_the_job(shape, dtype):
    tensor = transform(picture(), shape, dtype, random.Random(1))
    assert tuple(tensor.shape) == shape
    assert tensor.dtype is getattr(torch, dtype)
    assert tensor.is_contiguous()
    tensor.add_(1)


def test_floats_are_normalised_as_imagenet_is():
    white = Image.new("RGB", (10, 10), (255, 255, 255))
    tensor = transform(white, (3, 4, 4), "float32", random.Random(1))
    expected = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert tensor[:, 2, 2].tolist() == pytest.approx(expected, rel=1e-5)


def test_crops_vary_in_place_size_and_direction():
    rng = random.Random(3)
    flips, areas, ratios, lefts = 0, [], [], set()
    for _ in range(400):
        red, green, _ = transform(picture(), (3, 16, 16), "uint8", rng).float()
        across, down = red[:, -1].mean() - red[:, 0].mean(), green[-1].mean() - green[0].mean()
        assert down > 0, "only horizontal flips"
        flips += bool(across < 0)
        width, height = abs(across) * 16 / 15, down * 16 / 15
        areas.append(float(width * height) / 200**2)
        ratios.append(float(width / height))
        lefts.add(int(red.min()))
    assert 150 < flips < 250
    assert 0.06 < min(areas) < 0.15
    assert 0.8 < max(areas) <= 1.02
    assert 0.68 < min(ratios) < 0.8
    assert 1.25 < max(ratios) < 1.42
    assert len(lefts) > 50


def test_an_image_that_no_crop_fits_is_taken_whole():
    line = Image.new("RGB", (1000, 1), (9, 9, 9))
    assert transform(line, (3, 4, 4), "uint8", random.Random(1)).unique().tolist() == [9]


@pytest.mark.parametrize("shape", [(3, 8), (4, 8, 8), (8, 8, 3)])
def test_other_shapes_are_no_image(shape):
    with pytest.raises(ValueError, match="an image needs"):
        sample(shape=shape)


def test_raw_bytes_are_the_tensor():
    data = np.arange(10, dtype=np.float32).tobytes()
    assert raw_tensor(data, (2, 3), "float32").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert raw_tensor(data + b"xy", (12,), "float32").tolist() == [*range(10), 0, 1]
    assert raw_tensor(data, (2,), "float32").add_(1).tolist() == [1, 2]
    with pytest.raises(CorruptImage, match="3 bytes"):
        raw_tensor(b"abc", (2,), "float32")
    dataset = SampleDataset(Generated((data,)), sample("raw", (2, 2), "float32"), 1)
    assert dataset[0].tolist() == [[0, 1], [2, 3]]


def test_the_next_sample_stands_in_for_a_corrupt_one():
    contents = (*GREY_STEPS[:2], b"broken", GREY_STEPS[3][:30], GREY_STEPS[4])
    counters = Counters.create(1)
    dataset = SampleDataset(Generated(contents), sample(), 1, counters)
    values = [int(dataset[index][0, 0, 0]) for index in range(5)]
    assert values == [0, 1, 4, 4, 4]
    (record,) = counters.read()
    assert record.corrupt == 3
    assert record.corrupt_names == ("generated sample 2", "generated sample 3")
    counters.close()


def test_the_last_sample_is_followed_by_the_first():
    dataset = SampleDataset(Generated((*GREY_STEPS[:2], b"broken")), sample(), 1)
    assert int(dataset[2][0, 0, 0]) == 0


class Vanishing(Generated):
    def fetch(self, index):
        if index == 1:
            raise FileNotFoundError(2, "No such file or directory", "one.jpg")
        if index == 3:
            raise OSError(5, "Input/output error")
        return super().fetch(index)


def test_a_file_that_went_away_is_a_corrupt_sample_and_a_broken_disk_is_not():
    dataset = SampleDataset(Vanishing(GREY_STEPS), sample(), 1)
    assert int(dataset[1][0, 0, 0]) == 2
    with pytest.raises(OSError, match="Input/output error"):
        dataset[3]


def test_sixteen_corrupt_samples_in_a_row_are_an_error():
    contents = (*[b"broken"] * 16, GREY_STEPS[7])
    dataset = SampleDataset(Generated(contents), sample(), 1)
    assert int(dataset[1][0, 0, 0]) == 7
    with pytest.raises(CorruptData, match=r"16 samples in a row .* generated sample 15 .*Unident"):
        dataset[0]


def test_nothing_to_load_is_said_at_once():
    with pytest.raises(ValueError, match="no sample"):
        SampleDataset(Generated(()), sample(), 1)


def test_without_workers_the_seed_decides():
    contents = Generated((png(picture()),))
    first, again, other = (SampleDataset(contents, sample(), seed) for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])


def test_each_worker_has_its_own_randomness_and_the_loader_seeds_it():
    dataset = SampleDataset(Generated((png(picture()),) * 8), sample(), 1)
    dataset[0]  # a generator made before the fork must not become every worker's

    def crops(seed):
        generator = torch.Generator().manual_seed(seed)
        loader = DataLoader(dataset, 1, num_workers=2, generator=generator,
                            multiprocessing_context="fork")  # fmt: skip
        return [batch.flatten().tolist() for batch in loader]

    first = crops(1)
    assert all(one != other for one, other in itertools.combinations(first, 2))
    assert crops(1) == first
    assert crops(2) != first


def test_can_be_pickled_after_use():
    dataset = SampleDataset(Generated(GREY_STEPS), sample(), 1)
    dataset[0]
    assert int(pickle.loads(pickle.dumps(dataset))[42][0, 0, 0]) == 42


@pytest.mark.timeout(20)
def test_endless_shuffle_gives_each_index_once_per_epoch():
    indices = list(itertools.islice(EndlessShuffle(50, seed=1), 200))
    epochs = [indices[start : start + 50] for start in range(0, 200, 50)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(50))
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert indices == list(itertools.islice(EndlessShuffle(50, seed=1), 200))
    assert indices != list(itertools.islice(EndlessShuffle(50, seed=2), 200))
    with pytest.raises(ValueError, match="nothing"):
        EndlessShuffle(0, seed=1)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("count", "ranks"), [(96, 4), (50, 4), (3, 4), (1, 2), (7, 1)])
def test_ranks_share_each_epoch(count, ranks):
    share = -(-count // ranks)
    parts = [
        list(itertools.islice(EndlessShuffle(count, 1, rank, ranks), 2 * share))
        for rank in range(ranks)
    ]
    orders = []
    for epoch in range(2):
        drawn = [part[epoch * share : (epoch + 1) * share] for part in parts]
        order = [indices[place] for place in range(share) for indices in drawn]
        assert sorted(order[:count]) == list(range(count)), "each index once"
        again = itertools.islice(itertools.cycle(order[:count]), len(order))
        assert order == list(again), "a round that is not full begins anew"
        orders.append(order)
    assert count < 5 or orders[0] != orders[1]


@pytest.mark.timeout(20)
def test_ranks_share_an_epoch_as_the_distributed_sampler_does():
    theirs = [
        len(DistributedSampler(range(50), num_replicas=4, rank=rank, seed=3)) for rank in range(4)
    ]
    assert theirs == [13, 13, 13, 13]
    sampler = DistributedSampler(range(50), num_replicas=4, rank=1, shuffle=False)
    order = torch.arange(50)
    with mock.patch.object(torch, "randperm", lambda *_, **__: order):
        ours = list(itertools.islice(EndlessShuffle(50, 3, rank=1, ranks=4), 13))
    assert ours == list(sampler)


@pytest.mark.timeout(60)
def test_a_loader_never_comes_to_its_end():
    dataset = SampleDataset(Generated(GREY_STEPS), sample(), 1)
    loader = DataLoader(dataset, 32, sampler=EndlessShuffle(100, 1), num_workers=2)
    seen = Counter()
    for batch in itertools.islice(loader, 25):
        assert len(batch) == 32
        seen.update(batch[:, 0, 0, 0].tolist())
    assert set(seen) == set(range(100))
    assert set(seen.values()) == {8}
