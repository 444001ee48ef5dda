"""The data sets of the staged cases: each is slow, or fails, for one reason that is known.

Work on a CPU is counted in the calling thread's own CPU time, so that the rate does not move with
the machine's speed. What differs between a case and the run after its remedy is read from the
environment.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
import os
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

_COUNT = 100_000
_ON = "1"


def _number(name: str, default: float) -> float:
    return float(os.environ.get(name, default))


class Samples(Dataset[Any]):
    """Small images; `work` is what each of them costs."""

    def __init__(self, work: Callable[[], object], shape: tuple[int, ...] = (3, 32, 32)) -> None:
        self.work, self.shape = work, shape

    def __len__(self) -> int:
        return _COUNT

    def __getitem__(self, index: int) -> Any:
        self.work()
        return torch.zeros(self.shape, dtype=torch.uint8)


# -- CPU ----------------------------------------------------------------------------------------


def transform(seconds: float) -> None:
    """Python that keeps one CPU busy for so much CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(number * number for number in range(200))


class Spending:
    """CPU_MS of CPU time a sample."""

    def __call__(self) -> None:
        transform(_number("CPU_MS", 10) / 1000)


def cpu() -> Dataset[Any]:
    return Samples(Spending())


class Helped(Samples):
    """Threads beside the one that loads spin while they wait, as those of OpenMP may."""

    def __init__(self) -> None:
        super().__init__(Spending())
        self.started = False

    def __getitem__(self, index: int) -> Any:
        if not self.started:
            self.started = True
            for _ in range(int(os.environ.get("OMP_NUM_THREADS", 8)) - 1):
                threading.Thread(target=_spin, daemon=True).start()
        until = time.thread_time() + _number("CPU_MS", 10) / 1000
        while time.thread_time() < until:
            zlib.crc32(_BLOCK)
        return torch.zeros(self.shape, dtype=torch.uint8)


_BLOCK = bytes(1 << 19)  # a large block: the checksum lets other threads run meanwhile


def _spin() -> None:
    while True:
        zlib.crc32(_BLOCK)


def helpers() -> Dataset[Any]:
    return Helped()


# -- Waits --------------------------------------------------------------------------------------


class Waiting:
    """WAIT_MS of doing nothing a sample."""

    def __call__(self) -> None:
        time.sleep(_number("WAIT_MS", 20) / 1000)


def sleeping() -> Dataset[Any]:
    return Samples(Waiting())


class Locked:
    """One worker at a time, unless LOCK=0."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work, self.lock = work, multiprocessing.Lock()

    def __call__(self) -> None:
        if os.environ.get("LOCK", _ON) != _ON:
            self.work()
            return
        with self.lock:
            self.work()


def locked() -> Dataset[Any]:
    return Samples(Locked(Waiting()))


def locked_cpu() -> Dataset[Any]:
    return Samples(Locked(Spending()))


class Asking:
    """One request a sample to the server at CASE_PORT."""

    def __call__(self) -> None:
        with socket.create_connection(("127.0.0.1", int(os.environ["CASE_PORT"]))) as connection:
            connection.sendall(b"sample")
            while connection.recv(1 << 16):
                pass


def remote() -> Dataset[Any]:
    return Samples(Asking())


class Thrashing:
    """A device, first come first served, that takes longer the more there is in its queue.

    The queue is known by when it will be empty: who is killed in it leaves no trace.
    """

    def __init__(self) -> None:
        self.free_at = multiprocessing.Value("d", 0.0)

    def __call__(self) -> None:
        with self.free_at.get_lock():
            now = time.monotonic()
            queue_s = max(0.0, self.free_at.value - now)
            self.free_at.value = now + queue_s + 0.003 * math.sqrt(1 + queue_s / 0.003)
            done_at = self.free_at.value
        time.sleep(max(0.0, done_at - time.monotonic()))


def thrashing() -> Dataset[Any]:
    return Samples(Thrashing())


class OfOneRank:
    """Rank 1 takes SLOW_MS a sample, the others 5 ms."""

    def __call__(self) -> None:
        slow = os.environ.get("RANK") == "1"
        time.sleep(_number("SLOW_MS", 40) / 1000 if slow else 0.005)


def slow_rank() -> Dataset[Any]:
    return Samples(OfOneRank())


class Mapped(Dataset[Any]):
    """Every file of PREFLIGHT_DATA, read through a memory map."""

    def __init__(self) -> None:
        self.paths = sorted(Path(os.environ["PREFLIGHT_DATA"]).rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with (
            self.paths[index].open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            return torch.tensor(zlib.crc32(mapped))


def mapped() -> Dataset[Any]:
    return Mapped()


# -- Hand-over ----------------------------------------------------------------------------------


class Huge(Dataset[Any]):
    """Samples whose copying is all the work; DTYPE says how large they are."""

    def __init__(self) -> None:
        dtype = getattr(torch, os.environ.get("DTYPE", "float64"))
        self.sample = torch.zeros((3, 720, 720), dtype=dtype)

    def __len__(self) -> int:
        return _COUNT

    def __getitem__(self, index: int) -> Any:
        return self.sample


def huge() -> Dataset[Any]:
    return Huge()


class Tiny(Dataset[Any]):
    """A number."""

    def __len__(self) -> int:
        return _COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


def tiny() -> Dataset[Any]:
    return Tiny()


class TinyBatches(Tiny):
    """The same numbers, a batch at once."""

    def __getitem__(self, index: Any) -> Any:
        return torch.tensor(index)


def tiny_batches() -> DataLoader[Any]:
    data = TinyBatches()
    batches = BatchSampler(RandomSampler(data), batch_size=1024, drop_last=True)
    return DataLoader(data, batch_size=None, sampler=batches, num_workers=2)


class InMain(DataLoader[Any]):
    """Waits MAIN_MS for each batch in the process that trains."""

    def __iter__(self) -> Any:
        return self._slowly(super().__iter__())

    def _slowly(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            transform(_number("MAIN_MS", 40) / 1000)
            yield batch


def main_process() -> DataLoader[Any]:
    return InMain(Samples(_nothing), batch_size=4, num_workers=2)


def _nothing() -> None:
    pass


def _as_list(samples: list[Any]) -> list[Any]:
    return samples


def list_collate() -> DataLoader[Any]:
    """A file in /dev/shm and a descriptor for each sample."""
    side = int(_number("SIDE", 1024))
    data = Samples(_nothing, (3, side, side))
    size = int(_number("BATCH", 16))
    return DataLoader(data, batch_size=size, num_workers=2, collate_fn=_as_list)


def no_batches() -> DataLoader[Any]:
    """The data set makes the batches: nothing is collated."""
    data = Samples(_nothing, (16, 3, 1024, 1024))
    return DataLoader(data, batch_size=None, num_workers=2)


def large() -> Dataset[Any]:
    """Larger than the thresholds' `sample` says."""
    return Samples(_nothing, (3, 1024, 1024))


# -- Failures -----------------------------------------------------------------------------------


def _raise() -> None:
    raise KeyError("label")


def raising() -> Dataset[Any]:
    return Samples(_raise)


class Ragged(Samples):
    """Samples of two sizes, which cannot be stacked."""

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3, 32 + index % 2, 32)


def ragged() -> Dataset[Any]:
    return Ragged(_nothing)


def _hang() -> None:
    threading.Event().wait()


def hanging() -> Dataset[Any]:
    return Samples(_hang)


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def crashing() -> Dataset[Any]:
    return Samples(_crash)


def unpicklable() -> Dataset[Any]:
    return Samples(lambda: None)


class Hungry:
    """Keeps the last KEEP samples of 8 MiB in each worker."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []

    def __call__(self) -> None:
        self.kept.append(bytearray(b"1") * (8 << 20))
        del self.kept[: -int(_number("KEEP", 90))]


def hungry() -> Dataset[Any]:
    return Samples(Hungry())


if os.environ.get("SLOW_IMPORT"):
    time.sleep(float(os.environ["SLOW_IMPORT"]))
