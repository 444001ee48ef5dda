"""What a factory may return, what becomes of it, and what is said of everything else."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    get_worker_info,
)

from preflight.checks.contract import Unavailable, Unit
from preflight.job import Job
from preflight.machine.root import host
from preflight.measure import supply
from preflight.measure.loader import OpenLoader, open_loader
from preflight.measure.user_data import SamplesInItem
from preflight.scratch import Scratch
from tests import making

pytestmark = pytest.mark.timeout(60)

MODULE = "factory_under_test"


class Numbers(Dataset[Any]):
    def __init__(self, count: int = 100) -> None:
        self.count = count
        self.first = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.first + index)


class Raising(Numbers):
    def __getitem__(self, index: int) -> Any:
        raise KeyError("label")


class Full(Numbers):
    def __getitem__(self, index: int) -> Any:
        raise OSError(24, "Too many open files")


class Stream(IterableDataset[Any]):
    """As many samples in each worker."""

    def __init__(self, count: int, only_worker: int | None = None) -> None:
        self.count = count
        self.only_worker = only_worker

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if self.only_worker is None or (worker and worker.id == self.only_worker):
            yield from (torch.tensor(number) for number in range(self.count))


class Once(Stream):
    """Is used up when it has been iterated."""

    def __iter__(self) -> Iterator[Any]:
        count, self.count = self.count, 0
        yield from (torch.tensor(number) for number in range(count))


class Batches(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from ({"x": torch.zeros(5, 3), "y": torch.zeros(5)} for _ in range(4))


class Duck:
    """What other libraries have: torch loads from it, and it is no class of torch's."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


class OwnLoader(DataLoader[Any]):
    """A subclass that does more."""

    def __iter__(self) -> Any:
        self.epochs = getattr(self, "epochs", 0) + 1
        return super().__iter__()


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    with mock.patch.dict(os.environ), mock.patch.object(sys, "path", [*sys.path]):
        yield
    sys.modules.pop(MODULE, None)
    gc.collect()  # workers forked later must not find this test's loader and end it


def unit(**changes: Any) -> Unit:
    workers = changes.pop("num_workers", 2)
    context = changes.pop("multiprocessing_context", None)
    job: Job = making.job(
        num_workers=workers, batch_size=8, dataset=f"{MODULE}:make", **changes
    )  # fmt: skip
    if context:
        loader = job.loader.model_copy(update={"multiprocessing_context": context})
        job = job.model_copy(update={"loader": loader})
    return Unit(
        subject="rank 0", machine=host(), limits=making.limits("dataloader"), job=job,
        facts=making.facts(), earlier={}, scratch=Scratch("unused"),
    )  # fmt: skip


def opened(make: Any, rank: int = 0, **changes: Any) -> OpenLoader:
    module = ModuleType(MODULE)
    module.make = make  # type: ignore[attr-defined]
    sys.modules[MODULE] = module
    return open_loader(unit(**changes), rank)


def take(open_: OpenLoader, batches: int) -> list[Any]:
    return list(itertools.islice(open_.loader, batches))


def counted(open_: OpenLoader) -> int:
    return sum(slot.finished for slot in open_.counters.read())


# -- what it may return -------------------------------------------------------------------------


@pytest.mark.parametrize("made", [Numbers(), Duck()], ids=["torch's", "like it"])
def test_a_dataset_gets_the_jobs_loader(made: Any) -> None:
    found = opened(lambda: made)
    assert found.fields() == {
        "num_workers": 2, "batch_size": 8, "prefetch_factor": 2, "dataset_kind": "dataset",
        "files": None, "pin_memory": False,
    }  # fmt: skip
    assert [len(batch) for batch in take(found, 30)] == [8] * 30  # more than one epoch
    assert counted(found) >= 240
    assert all(slot.pid not in (None, os.getpid()) for slot in found.counters.read())


def test_a_dataset_is_shared_among_the_ranks() -> None:
    parts = []
    for rank in range(3):
        batches = take(opened(lambda: Numbers(96), rank=rank, ranks=3), 4)
        parts.append({int(number) for batch in batches for number in batch})
    assert [len(part) for part in parts] == [32, 32, 32]
    assert set.union(*parts) == set(range(96))


@pytest.mark.parametrize("make", [Numbers(), Numbers], ids=["object", "class"])
def test_the_data_set_itself_may_be_named(make: Any) -> None:
    assert opened(make).kind == "dataset"


def test_a_stream_gets_the_jobs_loader_and_begins_anew() -> None:
    found = opened(lambda: Stream(10))
    assert (found.kind, found.workers, found.batch_size) == ("iterable_dataset", 2, 8)
    assert [len(batch) for batch in take(found, 12)] == [8] * 12
    assert counted(found) >= 96


def test_a_worker_without_a_part_of_the_stream_is_known_to_be_without() -> None:
    found = opened(lambda: Stream(10, only_worker=1))
    assert len(take(found, 5)) == 5
    assert [slot.empty for slot in found.counters.read()] == [True, False]


def test_a_stream_that_is_used_up_begins_anew_in_the_next_epoch() -> None:
    found = opened(lambda: Once(20))
    for _ in range(2):
        assert len(list(found.loader)) == 4  # two whole batches of each worker


def test_a_dataloader_stays_as_it_is() -> None:
    theirs: list[int] = []

    def collate(samples: list[Any]) -> list[int]:
        return [int(sample) for sample in samples]

    def init(worker_id: int) -> None:
        info = get_worker_info()
        assert info is not None
        info.dataset.first = 1000  # their own data set's, through our wrapper

    made = OwnLoader(
        Numbers(24), batch_sampler=BatchSampler(SequentialSampler(range(24)), 5, False),
        collate_fn=collate, num_workers=3, prefetch_factor=4, worker_init_fn=init,
        persistent_workers=True, in_order=False, generator=torch.Generator(),
    )  # fmt: skip
    kept = {name: getattr(made, name) for name in (
        "batch_sampler", "sampler", "generator", "in_order", "persistent_workers",
        "pin_memory", "drop_last", "multiprocessing_context",
    )}  # fmt: skip
    found = opened(lambda: made)
    assert found.fields() == {
        "num_workers": 3, "batch_size": None, "prefetch_factor": 4, "files": None,
        "dataset_kind": "dataloader", "pin_memory": False,
    }  # fmt: skip
    assert found.in_flight() is None
    for _ in range(2):
        epoch = list(found.loader)
        assert sorted(map(len, epoch)) == [4, 5, 5, 5, 5]
        theirs += [number for batch in epoch for number in batch]
    assert sorted(theirs) == sorted([*range(1000, 1024), *range(1000, 1024)])
    assert os.getpid() not in {slot.pid for slot in found.counters.read()} - {None}
    assert all(slot.started_ns for slot in found.counters.read())
    assert counted(found) == 48
    assert made.collate_fn.collate is collate  # timed, and theirs
    assert made.epochs == 2
    assert all(getattr(made, name) is value for name, value in kept.items())
    assert made.timeout == making.job().loader.timeout_s


def test_a_time_limit_of_its_own_stands() -> None:
    made = DataLoader(Numbers(), num_workers=1, timeout=7)
    opened(lambda: made)
    assert made.timeout == 7


def test_a_dataloader_that_was_tried_in_the_factory_is_counted() -> None:
    def make() -> Any:
        made = DataLoader(Numbers(40), 8, num_workers=1, persistent_workers=True)
        next(iter(made))
        return made

    found = opened(make)
    assert len(list(found.loader)) == 5
    assert counted(found) == 40


def test_a_dataloader_without_workers_counts_in_this_process() -> None:
    found = opened(lambda: DataLoader(Numbers(20), 8, drop_last=True))
    assert (found.workers, found.prefetch_factor, found.in_flight()) == (0, None, 0)
    assert len(list(found.loader)) == 2
    (slot,) = found.counters.read()
    assert (slot.finished, slot.pid) == (16, os.getpid())
    assert slot.started_ns is not None


def test_samples_in_batches_that_the_data_set_makes_are_counted() -> None:
    found = opened(lambda: DataLoader(Batches(), batch_size=None, num_workers=1))
    assert found.batch_size is None
    assert len(list(found.loader)) == 4
    assert counted(found) == 20


@pytest.mark.parametrize(
    ("item", "samples"),
    [
        (torch.zeros(7, 3), 7),
        ({"id": "a", "x": [torch.zeros(5, 2)]}, 5),
        (("name", np.zeros((6, 2))), 6),
        (torch.zeros(3, 224, 224), 1),  # the shape of one sample
        (torch.tensor(3), 1),
        ("text", 1),
        (None, 1),
    ],
)
def test_how_many_samples_are_in_an_item(item: Any, samples: int) -> None:
    assert SamplesInItem((3, 224, 224))(item) == samples


@pytest.mark.parametrize("persistent", [True, False])
def test_short_epochs_of_the_jobs_loader(persistent: bool) -> None:
    found = opened(lambda: Numbers(50))
    short = found.epoch_of(3, persistent_workers=persistent)
    assert short is not None and short.persistent_workers is persistent
    assert [[len(batch) for batch in short] for _ in range(2)] == [[8, 8, 8]] * 2
    assert (short.num_workers, short.timeout) == (2, found.torch_loader.timeout)


def test_epochs_of_the_users_own_stay_as_they_are() -> None:
    assert opened(lambda: DataLoader(Numbers())).epoch_of(3, persistent_workers=True) is None
    assert opened(lambda: Stream(9)).epoch_of(3, persistent_workers=True) is None


def test_the_factory_finds_its_rank_and_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "11")  # of whoever started the gate
    seen: list[str] = []

    def make() -> Any:
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "PREFLIGHT_DATA")
        seen.extend(os.environ[name] for name in names)
        return Numbers()

    opened(make, rank=3, ranks=4, data="/data/x", data_state="ok")
    assert seen == ["3", "3", "4", "4", "/data/x"]


def test_a_loader_without_workers_is_measured() -> None:
    module = ModuleType(MODULE)
    module.make = lambda: DataLoader(Numbers(), 8)  # type: ignore[attr-defined]
    sys.modules[MODULE] = module
    quick = {"block_s": 0.05, "warmup_s": 0.1, "max_s": 2.0}
    made = unit(stats=making.job().stats.model_copy(update=quick))
    fields = supply.measure(made, 1.0, lambda fields: None)
    assert fields["decision"].verdict == "reached"
    assert (fields["num_workers"], fields["batch_size"], fields["dataset_kind"]) == (
        0, 8, "dataloader",
    )  # fmt: skip
    assert fields["cpu_budget"].main_ms is None  # it is the one that loads


def test_more_workers_than_memory_holds_are_not_started() -> None:
    module = ModuleType(MODULE)
    module.make = lambda: DataLoader(Numbers(), num_workers=5000)  # type: ignore[attr-defined]
    sys.modules[MODULE] = module
    with pytest.raises(Unavailable, match="5000 workers x"):
        supply.measure(unit(), 1.0, lambda fields: None)


# -- what it may not ----------------------------------------------------------------------------


def reason(make: Any, **changes: Any) -> str:
    """What is said of it, at the start or in the first epoch: what was seen, and what to do."""
    said = ""
    try:
        take(opened(make, **changes), 10)
    except Unavailable as error:  # and not pytest.raises, which would keep the loader alive
        said = str(error)
    cause, separator, remedy = said.partition("; ")
    assert cause and separator and remedy and "\n" not in said
    return said


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: None, "None"),
        (lambda: [1, 2], "a list"),
        (lambda: iter([1]), "a list_iterator"),
        (lambda: torch.zeros(3), "a Tensor"),
        (lambda: np.zeros(3), "a ndarray"),
        (lambda: Numbers, "a type"),
    ],
)
def test_anything_else(make: Any, what: str) -> None:
    said = f"{MODULE}:make returned {what}; it must return a Dataset, an IterableDataset or a Data"
    assert reason(make).startswith(said)


def test_a_factory_that_raises_or_wants_arguments() -> None:
    def make() -> Any:
        raise FileNotFoundError("no /data/train; mount it")

    said = reason(make)
    assert said.startswith(f"{MODULE}:make raised FileNotFoundError: no /data/train, mount it (")
    assert f"({__file__}, line " in said
    assert "missing 1 required positional argument" in reason(lambda root: root)
    assert f"{MODULE}:make raised SystemExit: 2" in reason(lambda: sys.exit(2))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_that_raises(workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    said = reason(lambda: DataLoader(Raising(), num_workers=workers))
    assert f"loading from {MODULE}:make raised KeyError: 'label' ({__file__}, line " in said
    assert 'raise KeyError("label")' in capfd.readouterr().err


def test_a_collate_that_raises_within_torch() -> None:
    class Uneven(Numbers):
        def __getitem__(self, index: int) -> Any:
            return torch.zeros(index + 1)

    assert "do not fit into one batch: RuntimeError: stack expects" in reason(
        lambda: DataLoader(Uneven(), 4)
    )


def test_what_the_tables_name_keeps_its_own_words() -> None:
    with pytest.raises(OSError, match="Too many open files"):
        take(opened(Full, num_workers=1), 1)


def test_an_empty_dataset() -> None:
    assert "is empty; check the path" in reason(lambda: Numbers(0))
    assert "is empty; check the path" in reason(lambda: DataLoader(Numbers(0)))


def test_less_than_a_batch() -> None:
    said = reason(lambda: DataLoader(Numbers(5), 8, drop_last=True, num_workers=1))
    assert "its 5 samples are fewer than one batch of 8" in said
    assert "gave no batch: its data end before one is full" in reason(lambda: Stream(0))
    assert "gave no batch: its data end before one is full" in reason(lambda: Once(3))


def test_a_stream_that_is_used_up_in_workers_that_live_on() -> None:
    def make() -> Any:
        return DataLoader(Once(20), 8, num_workers=1, persistent_workers=True)

    found = opened(make)
    assert len(list(found.loader)) == 3
    with pytest.raises(Unavailable, match="nothing when they were begun a second time; let"):
        next(iter(found.loader))


def test_a_dataset_without_a_length() -> None:
    class Endless(Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            return index

    assert "has no len()" in reason(Endless) and "give it a __len__" in reason(Endless)


@pytest.mark.parametrize("whose", ["dataset", "dataloader"])
def test_what_cannot_be_sent_to_spawned_workers(whose: str) -> None:
    class Local(Numbers):
        pass

    def make() -> Any:
        if whose == "dataset":
            return Local()
        return DataLoader(Local(), num_workers=1, multiprocessing_context="spawn")

    said = reason(make, multiprocessing_context="spawn")
    assert "cannot be sent to workers that are started by spawn" in said
    assert "Local" in said


def test_spawned_workers_are_counted() -> None:
    made = DataLoader(
        Numbers(16), 8, num_workers=1, multiprocessing_context="spawn", worker_init_fn=None
    )
    found = opened(lambda: made)
    assert len(list(found.loader)) == 2
    assert counted(found) == 16
