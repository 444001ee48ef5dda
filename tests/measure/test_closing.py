"""The end of a loader's workers: idle ones, ones that are stuck, and what comes after them."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from preflight.measure.closing import close

pytestmark = pytest.mark.timeout(60)


class Numbers(Dataset[int]):
    """Number 8 and up never come."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index >= 8:
            time.sleep(300)
        return index


def loader(**settings: Any) -> DataLoader[int]:
    usual = {"batch_size": 2, "num_workers": 2, "persistent_workers": True}
    return DataLoader(Numbers(), **{**usual, **settings})


def test_idle_workers_end() -> None:
    iterator: Any = iter(loader(sampler=range(8)))
    assert len(list(zip(range(4), iterator, strict=True))) == 4
    workers = iterator._workers
    assert all(worker.is_alive() for worker in workers)
    assert close(iterator)
    assert not any(worker.is_alive() for worker in workers)
    assert [worker.exitcode for worker in workers] == [0, 0]  # asked, not killed


def test_workers_that_are_stuck_are_killed_and_nothing_is_raised() -> None:
    iterator: Any = iter(loader())
    assert next(iterator).tolist() == [0, 1]
    errors: list[BaseException] = []

    def drain() -> None:
        try:
            for _ in iterator:
                pass
        except BaseException as error:
            errors.append(error)

    threading.Thread(target=drain, daemon=True).start()
    time.sleep(0.3)  # until both workers are at a sample that never comes
    workers, heard = iterator._workers, signal.getsignal(signal.SIGCHLD)
    assert close(iterator, polite_s=0.2)
    assert [worker.exitcode for worker in workers] == [-signal.SIGKILL] * 2
    assert signal.getsignal(signal.SIGCHLD) is heard
    time.sleep(0.1)  # torch's handler would raise here

    again: Any = iter(loader(sampler=range(8)))
    assert len(list(again)) == 4
    assert close(again)


def test_a_loader_without_workers_has_nothing_to_end() -> None:
    assert close(iter(loader(num_workers=0, persistent_workers=False)))


def test_closing_twice_is_closing_once() -> None:
    iterator: Any = iter(loader(sampler=range(8)))
    next(iterator)
    assert close(iterator)
    assert close(iterator)
