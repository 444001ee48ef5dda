"""Data sets of a job that break a loader, each in one way; copied beside a run as job.py."""

import ctypes
import os
import threading
import time
from typing import ClassVar

import torch
from torch.utils.data import DataLoader, Dataset

MB3 = (3, 500, 500)


class Images(Dataset):
    def __init__(self, *shape):
        self.shape = shape or (3, 8, 8)

    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.zeros(*self.shape)


def as_list(samples):
    return samples


def big():
    return DataLoader(Images(*MB3), batch_size=8, num_workers=2)


def big_list():
    return DataLoader(Images(*MB3), batch_size=8, num_workers=2, collate_fn=as_list)


def big_alone():
    return DataLoader(Images(8, *MB3), batch_size=None, num_workers=2)


def many_tensors():
    return DataLoader(Images(), batch_size=64, num_workers=2, collate_fn=as_list)


class Threads(Images):
    def __getitem__(self, index):
        for _ in range(60):
            threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        return super().__getitem__(index)


class Eats(Images):
    kept: ClassVar[list] = []

    def __getitem__(self, index):
        self.kept.append(torch.ones(16, 1024, 1024))
        return super().__getitem__(index)


def eats():
    return Images(), [torch.ones(16, 1024, 1024) for _ in range(100)]


class Corrupt(Images):
    def __getitem__(self, index):
        if index % 20 == 3:
            raise OSError("image file is truncated")
        return super().__getitem__(index)


class Ragged(Images):
    def __getitem__(self, index):
        return torch.zeros(3, 8 + index % 3, 8)


class Lambdas(Images):
    def __getitem__(self, index):
        return lambda: index


def lambdas():
    return DataLoader(Lambdas(), batch_size=4, num_workers=1, collate_fn=as_list)


class Locked(Images):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Hangs(Images):
    def __getitem__(self, index):
        threading.Event().wait()


class HangsInC(Images):
    def __getitem__(self, index):
        ctypes.PyDLL(None).sleep(1000)  # with Python's lock held


def without_workers():
    return DataLoader(Hangs(), batch_size=4)


def hangs_in_collate():
    return DataLoader(Images(), batch_size=4, num_workers=1, collate_fn=lambda _: time.sleep(999))


class HangsLater(Images):
    def __getitem__(self, index):
        self.given = getattr(self, "given", 0) + 1
        if self.given > 60:
            time.sleep(999)
        return super().__getitem__(index)


LOCK = threading.Lock()


class Deadlock(Images):
    def __getitem__(self, index):
        with LOCK:
            return super().__getitem__(index)


def hold():
    with LOCK:
        time.sleep(999)


def deadlock():
    threading.Thread(target=hold, name="holder", daemon=True).start()
    time.sleep(0.1)
    return Deadlock()


class Cuda(Images):
    def __getitem__(self, index):
        # torch's own words; a machine without CUDA cannot make it say them.
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
            "you must use the 'spawn' start method"
        )


class Crashes(Images):
    def __getitem__(self, index):
        return ctypes.string_at(0)


def crashes():
    return ctypes.string_at(0)


class Leaves(Images):
    def __getitem__(self, index):
        os._exit(7)


def never():
    open("mark", "w").close()
    time.sleep(999)
