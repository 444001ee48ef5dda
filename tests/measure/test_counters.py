import itertools
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

from preflight.data.image_folder import FileSource
from preflight.job import Sample
from preflight.measure import counters as module
from preflight.measure.counters import NAME_BYTES, Counters
from preflight.measure.counting import CountedCollate, counted, worker_init
from preflight.measure.dataset import EndlessShuffle, SampleDataset

IMAGE = Sample(codec="jpeg", encoded_bytes=1000, shape=(3, 8, 8), dtype="uint8")


@pytest.fixture
def counters():
    made = Counters.create(2)
    yield made
    made.close()


class Numbers(Dataset):
    """A user's dataset with more than torch asks for."""

    classes = ("cat", "dog")

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == 13:
            raise KeyError("unlucky")
        return torch.tensor(index)


class Batches(Numbers):
    def __getitems__(self, indices):
        return [torch.tensor(index) for index in indices]


class Stream(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        return iter(range(self.start, self.end))


class Sleeper(Numbers):
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.tensor(index)


class Spinner(Numbers):
    def __getitem__(self, index):
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return torch.tensor(index)


def shard(worker_id):
    """As torch's documentation shards a stream: by setting the bounds of the worker's copy."""
    dataset = get_worker_info().dataset
    half = (dataset.end - dataset.start) // 2
    dataset.start += worker_id * half
    dataset.end = dataset.start + half


@pytest.mark.timeout(60)
@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
def test_counts_exactly_and_names_corrupt_files(tmp_path, counters, context):
    paths = []
    for number in range(60):
        paths.append(str(tmp_path / f"{number:02}.png"))
        Image.new("RGB", (10, 10)).save(paths[-1])
    for number in (7, 30):
        Path(paths[number]).write_bytes(b"broken")
    before = time.monotonic_ns()
    dataset = counted(SampleDataset(FileSource(tuple(paths)), IMAGE, 1, counters), counters)
    loader = DataLoader(dataset, 5, num_workers=2, worker_init_fn=worker_init(counters),
                        multiprocessing_context=context)  # fmt: skip
    assert sum(len(batch) for batch in loader) == 60
    records = counters.read()
    assert [record.finished for record in records] == [30, 30]
    assert sum(record.corrupt for record in records) == 2
    assert {name for record in records for name in record.corrupt_names} == {paths[7], paths[30]}
    assert len({record.pid for record in records} | {os.getpid()}) == 3
    for record in records:
        assert before < record.started_ns < time.monotonic_ns()
        assert record.getitem_wall_ns > 0


@pytest.mark.timeout(60)
def test_counts_while_the_loader_runs_and_is_left(counters):
    dataset = counted(Numbers(10), counters)
    loader = DataLoader(dataset, 10, sampler=EndlessShuffle(10, 1), num_workers=2,
                        worker_init_fn=worker_init(counters), collate_fn=len)  # fmt: skip
    assert list(itertools.islice(loader, 4)) == [10] * 4
    assert sum(record.finished for record in counters.read()) >= 40


def test_nothing_is_reported_before_a_worker_starts(counters):
    for record in counters.read():
        assert record.started_ns is record.pid is None
        assert record.finished == record.corrupt == record.getitem_wall_ns == 0
        assert record.corrupt_names == ()


def test_counts_a_loader_without_workers_in_the_first_slot(counters):
    list(DataLoader(counted(Numbers(8), counters), 4))
    assert [record.finished for record in counters.read()] == [8, 0]


def test_time_inside_the_dataset_wall_and_cpu(counters):
    sleeper, spinner = counted(Sleeper(5), counters), counted(Spinner(5), counters)
    for index in range(5):
        sleeper[index]
    slept = counters.read()[0]
    assert slept.getitem_wall_ns >= 5 * 20_000_000
    assert slept.getitem_cpu_ns < slept.getitem_wall_ns / 2
    for index in range(5):
        spinner[index]
    assert counters.read()[0].getitem_cpu_ns - slept.getitem_cpu_ns >= 5 * 20_000_000


def collate(samples):
    time.sleep(0.02)
    if samples[0] == 99:
        raise ValueError("odd")
    return samples


def test_time_inside_collate_and_what_it_raises(counters):
    counted_collate = CountedCollate(collate, counters)
    assert pickle.loads(pickle.dumps(counted_collate))([1, 2]) == [1, 2]
    seen = counters.read()[0]
    assert seen.collate_wall_ns >= 20_000_000 > seen.collate_cpu_ns
    assert seen.finished == seen.getitem_wall_ns == 0
    with pytest.raises(ValueError, match="odd"):
        counted_collate([99])
    assert counters.slot(0).phase() == "between"
    assert counters.read()[0].collate_wall_ns == seen.collate_wall_ns


def test_where_a_worker_is_at_this_moment(counters):
    phases = []

    class Asking(Numbers):
        def __getitem__(self, index):
            phases.append(counters.slot(0).phase())
            assert counters.read()[0].getitem_since_ns <= time.monotonic_ns()
            return super().__getitem__(index)

    def ask(samples):
        phases.append(counters.slot(0).phase())
        assert counters.read()[0].collate_since_ns <= time.monotonic_ns()
        return samples

    list(DataLoader(counted(Asking(2), counters), 2, collate_fn=CountedCollate(ask, counters)))
    assert phases == ["getitem", "getitem", "collate"]
    with pytest.raises(KeyError):
        counted(Numbers(20), counters)[13]
    assert counters.slot(0).phase() == "between"
    assert counters.read()[0].getitem_since_ns is counters.read()[0].collate_since_ns is None


def test_what_the_dataset_raises_comes_through_uncounted(counters):
    dataset = counted(Numbers(20), counters)
    with pytest.raises(KeyError, match="unlucky"):
        dataset[13]
    assert counters.read()[0].finished == 0


def test_batches_are_counted_by_their_samples(counters):
    dataset = counted(Batches(20), counters)
    assert [len(batch) for batch in DataLoader(dataset, 8)] == [8, 8, 4]
    assert counters.read()[0].finished == 20
    assert [len(batch) for batch in DataLoader(counted(Subset(Batches(20), range(6)), counters), 6)]
    assert counters.read()[0].finished == 26


def test_offers_getitems_only_where_the_dataset_does(counters):
    assert not hasattr(counted(Numbers(3), counters), "__getitems__")
    assert hasattr(counted(Batches(3), counters), "__getitems__")
    disabled = Numbers(3)
    disabled.__getitems__ = None
    assert [int(item) for item in DataLoader(counted(disabled, counters))] == [0, 1, 2]
    assert counters.read()[0].finished == 3


class WholeBatches(Numbers):
    def __getitem__(self, indices):
        return torch.tensor(indices)


def test_a_list_of_indices_is_so_many_samples(counters):
    sampler = [[0, 1, 2], [3, 4]]
    loader = DataLoader(counted(WholeBatches(5), counters), batch_size=None, sampler=sampler)
    assert [batch.tolist() for batch in loader] == sampler
    assert counters.read()[0].finished == 5


@pytest.mark.timeout(60)
def test_streams_are_counted(counters):
    loader = DataLoader(counted(Stream(0, 40), counters), 4, num_workers=2, worker_init_fn=shard)
    values = sorted(int(value) for batch in loader for value in batch)
    assert values == list(range(40)), "setting an attribute must reach the user's dataset"
    assert [record.finished for record in counters.read()] == [20, 20]


def test_the_wrapper_is_transparent(counters):
    inner = Numbers(3)
    dataset = counted(inner, counters)
    assert len(dataset) == 3
    assert dataset.classes == ("cat", "dog")
    dataset.count = 5
    assert len(inner) == 5
    with pytest.raises(AttributeError, match="colour"):
        dataset.colour  # noqa: B018
    with pytest.raises(TypeError, match="len"):
        len(counted(Stream(0, 3), counters))
    assert isinstance(counted(Stream(0, 3), counters), IterableDataset)
    assert list(counted(Stream(0, 3), counters)) == [0, 1, 2]


class OwnState(Numbers):
    def __getstate__(self):
        return {"count": self.count * 2}


@pytest.mark.parametrize("inner", [Numbers(3), Batches(3), OwnState(3), Stream(0, 3)])
def test_the_wrapper_is_pickled_as_a_wrapper(counters, inner):
    again = pickle.loads(pickle.dumps(counted(inner, counters)))
    assert type(again) is type(counted(inner, counters))
    assert next(iter(again)) == 0
    assert counters.read()[0].finished == 1
    if isinstance(inner, OwnState):
        assert again.count == 6


def test_names_are_few_short_and_told_once(counters):
    slot = counters.slot(1)
    long = "/data/" + "x" * 300 + "/\udcffend.jpg"
    for name in (long, long, "b", "c", "d", "e"):
        slot.corrupt(name)
    other, record = counters.read()
    assert record.corrupt == 6
    first, *rest = record.corrupt_names
    assert first.endswith("x/\N{REPLACEMENT CHARACTER}end.jpg")
    assert len(first) == NAME_BYTES
    first.encode()
    assert rest == ["b", "c", "d"]
    assert other.corrupt_names == ()


def test_slots_do_not_touch_each_other():
    many = Counters.create(100)
    for number in range(100):
        for _ in range(5):
            many.slot(number).corrupt(f"{number} " + "y" * 500)
        many.slot(number).finish(number, 2**40, 3)
    for number, record in enumerate(many.read()):
        assert (record.finished, record.getitem_wall_ns, record.getitem_cpu_ns) == (
            number, 2**40, 3,
        )  # fmt: skip
        assert record.corrupt == 5
    many.close()


def test_closing_gives_everything_back():
    descriptors = len(os.listdir("/proc/self/fd"))
    made = Counters.create(3)
    made.slot(0)
    copy = pickle.loads(pickle.dumps(made))
    copy.slot(2).finish(1, 1, 1)
    assert made.read()[2].finished == 1
    copy.close()
    made.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_worker_that_may_not_open_them_counts_unseen(counters, monkeypatch):
    data = pickle.dumps(counters)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.os, "open", refuse)
    unseen = pickle.loads(data)
    unseen.slot(1).start()
    unseen.slot(1).finish(5, 1, 1)
    assert unseen.read()[1].finished == 5
    assert counters.read()[1].pid is None


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_a_number_that_was_given_to_another_file_is_left_alone(tmp_path, kind):
    made = Counters.create(2)
    data, number = pickle.dumps(made), made._fd
    made.close()
    if kind == "file":
        (tmp_path / "report").write_bytes(b"x" * 5000)
        other = [os.open(tmp_path / "report", os.O_RDWR)]
    else:
        other = list(os.pipe())
    os.dup2(other[0], number)
    late = pickle.loads(data)
    late.slot(0).finish(5, 1, 1)
    assert late.read()[0].finished == 5
    if kind == "file":
        assert (tmp_path / "report").read_bytes() == b"x" * 5000
    for descriptor in {*other, number}:
        os.close(descriptor)


def test_works_where_python_itself_has_no_memfd_create(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    made = Counters.create(1)
    pickle.loads(pickle.dumps(made)).slot(0).finish(7, 1, 1)
    assert made.read()[0].finished == 7
    made.close()


WITHOUT_A_PLACE_TO_WRITE = """
import multiprocessing, tempfile
from preflight.measure.counters import Counters
def report(counters):
    counters.slot(1).start()
    counters.slot(1).finish(3, 1, 1)
if __name__ == "__main__":
    tempfile.tempdir = "/nonexistent"
    counters = Counters.create(2)
    worker = multiprocessing.get_context("spawn").Process(target=report, args=(counters,))
    worker.start()
    worker.join()
    assert counters.read()[1].pid == worker.pid and counters.read()[1].finished == 3
"""


@pytest.mark.timeout(60)
def test_needs_no_temporary_directory(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_A_PLACE_TO_WRITE)
    environment = {**os.environ, "TMPDIR": "/nonexistent"}
    subprocess.run([sys.executable, script], check=True, env=environment)


def add(counters, times):
    for _ in range(times):
        counters.slot(0).finish(1, 1, 1)


@pytest.mark.timeout(60)
def test_a_reader_beside_a_writer_sees_only_whole_numbers_that_grow(counters):
    worker = multiprocessing.get_context("fork").Process(target=add, args=(counters, 100_000))
    worker.start()
    seen = [0]
    while worker.is_alive():
        seen.append(counters.read()[0].finished)
    assert seen == sorted(seen)
    assert max(seen) <= 100_000
    assert counters.read()[0].finished == 100_000
