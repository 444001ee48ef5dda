"""Ready samples through real loaders, whose collate has a known cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from preflight.machine.root import host
from preflight.measure import transport as module
from preflight.measure.stage_timing import StageFailed
from preflight.measure.stages import Share
from preflight.measure.transport import transport
from preflight.model import Stage
from tests import making

pytestmark = pytest.mark.timeout(60)

STATS = making.job().stats.model_copy(update={"stage_s": 0.6})
SHARE = Share(effective_cpus=2.0, ranks=1, workers=2)
ITEM = torch.zeros(3, 32, 32, dtype=torch.uint8)


class Untouchable(Dataset[Any]):
    """The job's own samples, which have no part in this."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("a sample was loaded")


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("a sample was loaded")


def slow_collate(samples: list[Any]) -> Any:
    time.sleep(0.02)
    return default_collate(samples)


def slow_conversion(item: Any) -> Any:
    time.sleep(0.02)
    return item


def bad_collate(samples: list[Any]) -> Any:
    raise ValueError("these do not go together")


def no_collate(samples: list[Any]) -> Any:
    time.sleep(300)


def not_called(worker_id: int) -> None:
    raise AssertionError("the data set is not the one that this prepares")


def measured(share: Share = SHARE, dataset: Any = None, item: Any = ITEM, **settings: Any) -> Stage:
    usual = {"batch_size": 8, "num_workers": 2, "prefetch_factor": 2, "timeout": 20}
    loader = DataLoader(dataset or Untouchable(), **{**usual, **settings})
    return transport(loader, item, share, STATS, host())


def workers_left() -> list[Any]:
    return list(torch.multiprocessing.active_children())


def test_ready_samples_through_the_jobs_own_settings() -> None:
    stage = measured(worker_init_fn=not_called)
    assert stage.name == "transport"
    rate = stage.samples_per_s
    assert rate.blocks >= 8
    assert rate.low is not None and 100 < rate.low < rate.value
    assert stage.cpu_ms_per_sample is not None and stage.cpu_ms_per_sample > 0
    assert stage.note is not None and stage.note.endswith(" ms of CPU a sample")
    assert not workers_left()


def test_a_collate_of_known_cost() -> None:
    """Two workers, 20 ms for each batch of 8."""
    stage = measured(collate_fn=slow_collate)
    assert 400 < stage.samples_per_s.value < 1600
    assert stage.samples_per_s.low is not None


def test_ranks_share_the_cpus() -> None:
    share = Share(effective_cpus=2.0, ranks=50, workers=2)
    stage = measured(share)
    assert stage.cpu_ms_per_sample is not None
    allowed = 2.0 * 1e3 / (50 * stage.cpu_ms_per_sample)
    assert stage.samples_per_s.value == pytest.approx(allowed, rel=0.01)


def test_a_loader_without_workers_does_it_in_the_main_process() -> None:
    stage = measured(num_workers=0, prefetch_factor=None, timeout=0, collate_fn=slow_collate)
    assert 200 < stage.samples_per_s.value < 800
    assert stage.cpu_ms_per_sample is not None


def test_a_loader_that_does_not_batch_hands_over_items() -> None:
    stage = measured(dataset=Stream(), batch_size=None, collate_fn=slow_conversion)
    assert 50 < stage.samples_per_s.value < 200


def test_an_item_may_hold_more_samples_than_one() -> None:
    settings = {"batch_size": None, "collate_fn": slow_conversion, "num_workers": 2}
    loader = DataLoader(Untouchable(), **settings)
    stage = transport(loader, [ITEM] * 8, SHARE, STATS, host(), samples_in=len)
    assert 400 < stage.samples_per_s.value < 1600


def test_a_batch_sampler_says_how_large_a_batch_is() -> None:
    batches = [[0, 1, 2, 3]] * 5
    stage = measured(
        batch_sampler=batches, batch_size=1, collate_fn=slow_collate
    )  # fmt: skip
    assert 200 < stage.samples_per_s.value < 800


def test_samples_of_any_form() -> None:
    stage = measured(item={"image": ITEM, "label": 3})
    assert stage.samples_per_s.value > 100


def test_what_a_worker_raises_is_raised_and_no_worker_stays() -> None:
    with pytest.raises(ValueError, match="these do not go together"):
        measured(collate_fn=bad_collate)
    assert not workers_left()


def test_a_loader_that_gives_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_S", 0.5)
    with pytest.raises(StageFailed, match=r"no batch of ready samples in 0\.5 s"):
        measured(collate_fn=no_collate)
    assert not workers_left()


def test_one_batch_alone_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes too late."""

    def second_never(samples: list[Any]) -> Any:
        if hasattr(second_never, "called"):
            time.sleep(300)
        second_never.called = True  # type: ignore[attr-defined]
        return default_collate(samples)

    with pytest.raises(StageFailed, match=r"no two batches of ready samples in 1\.8 s"):
        measured(num_workers=1, collate_fn=second_never)
    assert not workers_left()
