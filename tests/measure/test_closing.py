"""The end of a loader's workers: idle ones, ones that are stuck, and what comes after them."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest
from torch import multiprocessing
from torch.utils.data import DataLoader, Dataset

from preflight.measure.closing import end_workers, worker_pids

pytestmark = pytest.mark.timeout(60)


class Numbers(Dataset[int]):
    """Number 8 and up never come, and do not let themselves be terminated."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index >= 8:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)
        return index


def loader(**settings: Any) -> DataLoader[int]:
    usual = {"batch_size": 2, "num_workers": 2, "persistent_workers": True}
    return DataLoader(Numbers(), **{**usual, **settings})


def processes() -> list[Any]:
    return list(multiprocessing.active_children())


@pytest.mark.parametrize("persistent", [True, False])
def test_idle_workers_end(persistent: bool) -> None:
    batches: Any = iter(loader(sampler=range(8), persistent_workers=persistent))
    assert next(batches).tolist() == [0, 1]
    workers = processes()
    assert len(workers) == 2
    assert end_workers(worker_pids())
    assert not any(worker.is_alive() for worker in workers)
    del batches  # torch's own end, which has to bear with it


def test_workers_that_are_stuck_are_killed_and_nothing_is_raised() -> None:
    stuck: Any = iter(loader())
    assert next(stuck).tolist() == [0, 1]
    errors: list[BaseException] = []

    def drain() -> None:
        try:
            for _ in stuck:
                pass
        except BaseException as error:
            errors.append(error)

    drained = threading.Thread(target=drain, daemon=True)
    drained.start()
    time.sleep(0.3)  # until both workers are at a sample that never comes
    workers, heard = processes(), signal.getsignal(signal.SIGCHLD)
    assert end_workers(worker_pids())
    assert [worker.exitcode for worker in workers] == [-signal.SIGKILL] * 2
    assert signal.getsignal(signal.SIGCHLD) is heard
    again: Any = iter(loader(sampler=range(8)))
    assert len(list(again)) == 4
    assert end_workers(worker_pids())
    drained.join(20)
    assert not drained.is_alive() and "exited unexpectedly" in str(errors)


def test_other_processes_are_left_alone() -> None:
    helper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
    helper.start()
    before = worker_pids()
    batches: Any = iter(loader(sampler=range(8)))
    next(batches)
    try:
        assert end_workers(worker_pids() - before)
        assert processes() == [helper]
    finally:
        helper.kill()
        helper.join()


def test_nothing_to_end() -> None:
    iter(loader(num_workers=0, persistent_workers=False))
    assert end_workers([]) and end_workers([1])
