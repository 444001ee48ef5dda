"""A data set of the job's own whose samples may raise: what stands in, and what does not."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from preflight.measure.counters import Counters
from preflight.measure.dataset import CorruptData
from preflight.measure.standing_in import StandingIn

pytestmark = pytest.mark.timeout(60)


class Some(Dataset[Any]):
    """Of so many samples, those that are bad raise."""

    def __init__(self, bad: Callable[[int], bool], error: Exception, count: int = 40) -> None:
        self.bad, self.error, self.count, self.asked = bad, error, count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.asked += 1
        if self.bad(index):
            raise self.error
        return torch.tensor(index)


@pytest.fixture
def counters() -> Iterator[Counters]:
    made = Counters.create(2)
    yield made
    made.close()


def unlucky(index: int) -> bool:
    return index % 10 == 9


def late(index: int) -> bool:
    return index >= 20


def every(index: int) -> bool:
    return True


def test_the_next_sample_stands_in_and_the_first_error_is_named(counters: Counters) -> None:
    data = StandingIn(Some(unlucky, OSError("cut off")), counters)
    assert [int(data[index]) for index in (8, 9, 39, 19)] == [8, 10, 0, 20]
    seen = counters.read()[0]
    assert (seen.finished, seen.corrupt) == (4, 3)
    (name,) = seen.corrupt_names
    assert name.startswith("sample 9: OSError: cut off (") and __file__ in name


def test_too_many_in_a_row_are_no_few_bad_samples(counters: Counters) -> None:
    data = StandingIn(Some(late, OSError("cut off")), counters)
    assert int(data[0]) == 0
    with pytest.raises(CorruptData, match="16 samples in a row raised, sample 20: OSError"):
        data[20]


def test_a_data_set_that_gives_nothing_raises_its_own_error(counters: Counters) -> None:
    data = StandingIn(Some(every, KeyError("label")), counters)
    with pytest.raises(KeyError):
        data[0]


@pytest.mark.parametrize(
    "error",
    [
        OSError(24, "Too many open files"),
        RuntimeError("Cannot re-initialize CUDA in forked subprocess"),
        RuntimeError("unable to allocate shared memory(shm) for file"),
    ],
)
def test_what_is_no_samples_fault_is_raised_at_once(counters: Counters, error: Exception) -> None:
    inner = Some(unlucky, error)
    data = StandingIn(inner, counters)
    with pytest.raises(type(error)):
        data[9]
    assert inner.asked == 1 and counters.read()[0].corrupt == 0


def test_an_index_that_is_no_number_has_no_next_one(counters: Counters) -> None:
    class Batches(Some):
        def __getitem__(self, index: Any) -> Any:
            return [super(Batches, self).__getitem__(one) for one in index]

    data = StandingIn(Batches(unlucky, OSError("cut off")), counters)
    with pytest.raises(OSError, match="cut off"):
        data[[8, 9]]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_count_what_raised(counters: Counters, method: str) -> None:
    data = StandingIn(Some(unlucky, OSError("cut off")), counters)
    assert int(data[9]) == 10
    copy = pickle.loads(pickle.dumps(data))  # with what it has met so far left behind
    loader = DataLoader(copy, batch_size=4, num_workers=2, multiprocessing_context=method)
    assert sum(len(batch) for batch in loader) == 40
    assert sum(slot.corrupt for slot in counters.read()) == 5
