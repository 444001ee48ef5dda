"""Data sets whose bottleneck is known by construction, for --dataset; a few ms a sample each."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

PORT, FOLDER = "KINDS_PORT", "KINDS_FOLDER"


class Samples(Dataset[Any]):
    """Each sample is the same tensor, behind `work`."""

    def __init__(self, work: Callable[[], object], shape: tuple[int, ...] = (8,)) -> None:
        self.work, self.sample = work, torch.zeros(shape)

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        self.work()
        return self.sample


def spin() -> None:
    """2 ms of CPU in plain Python."""
    until = time.thread_time() + 0.002
    while time.thread_time() < until:
        pass


def nap() -> None:
    """5 ms of nothing."""
    time.sleep(0.005)


def busy() -> Dataset[Any]:
    """Every sample costs CPU time."""
    return Samples(spin)


def asleep() -> Dataset[Any]:
    """Every sample waits for nothing in particular."""
    return Samples(nap)


def locked() -> Dataset[Any]:
    """One sample at a time, over all workers."""
    lock = torch.multiprocessing.get_context("fork").Lock()

    def work() -> None:
        with lock:
            nap()

    return Samples(work)


def large() -> Dataset[Any]:
    """Nothing but bytes to hand over: 6 MB a sample."""
    return Samples(lambda: None, (3, 724, 724))


def unbatched() -> DataLoader[Any]:
    """The same as arrays, which go through the pipe: a thread of the worker sends them."""
    return DataLoader(Samples(lambda: None, (3, 724, 724)), 8, num_workers=2, collate_fn=arrays)


def arrays(samples: list[torch.Tensor]) -> list[Any]:
    """What a collate_fn returns that knows no shared memory."""
    return [sample.numpy() for sample in samples]


class Slow(Sampler[int]):
    """5 ms for each index, in the main process."""

    def __iter__(self) -> Iterator[int]:
        for index in range(10_000):
            nap()
            yield index


def slow_sampler() -> DataLoader[Any]:
    """The workers wait for what to load."""
    return DataLoader(Samples(lambda: None), 8, sampler=Slow(), num_workers=2)


def threaded() -> Dataset[Any]:
    """Two threads of its own in each worker do the work."""
    pool: list[ThreadPoolExecutor] = []

    def work() -> None:
        if not pool:
            pool.append(ThreadPoolExecutor(2))
        data = b"x" * 1_000_000
        list(pool[0].map(lambda _: hashlib.sha256(data).digest(), range(4)))

    return Samples(work)


def files() -> Dataset[Any]:
    """Every sample reads one of the files of a folder."""
    paths = list(Path(os.environ[FOLDER]).iterdir())
    return Samples(lambda: random.choice(paths).read_bytes())


def served() -> Dataset[Any]:
    """Every sample asks a server."""
    port = int(os.environ[PORT])

    def work() -> None:
        with socket.create_connection(("127.0.0.1", port)) as asked:
            asked.sendall(b"?")
            asked.recv(1)

    return Samples(work)


@contextmanager
def server(*, threads: bool) -> Iterator[int]:
    """Answers each connection after 20 ms, all at once or one after the other; gives the port."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)

    def answer(asked: socket.socket) -> None:
        with asked:
            asked.recv(1)
            time.sleep(0.02)
            asked.sendall(b"!")

    def serve() -> None:
        while True:
            try:
                asked, _ = listening.accept()
            except OSError:
                return
            if threads:
                threading.Thread(target=answer, args=(asked,), daemon=True).start()
            else:
                answer(asked)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()
