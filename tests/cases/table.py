"""The staged cases: what is made to go wrong, the cause that has to be named, and its remedy.

The causes are those that are true of the case, by how it is made. A demand is at least half as much
again as what the condition lets through, and at most two thirds of what the run after it can give.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from tests.cases import groups, staging
from tests.cases.play import Case, Start

_CPUS = len(os.sched_getaffinity(0))


def _run(demand: float | None, **values: object) -> tuple[str, ...]:
    """Options of a run of the loader; two underscores in a name are its dot."""
    sets = {"shm.min_free_gib": 0, **{key.replace("__", "."): v for key, v in values.items()}}
    if demand is not None:
        sets["dataloader.demand_samples_per_s"] = demand
    return ("--check=dataloader", *(f"--set={key}={value}" for key, value in sets.items()))


def loader(
    dataset: str, demand: float | None = None, *, workers: int = 2, batch: int = 8, **more: object
) -> tuple[str, ...]:
    """Options of a run over one of our data sets."""
    values = {"loader__num_workers": workers, "loader__batch_size": batch, **more}
    sets = _run(demand, sample__shape="[3,32,32]", **values)
    return (f"--dataset=tests.cases.datasets:{dataset}", *sets)


def images(demand: float | None = None, *, workers: int = 2, batch: int = 32) -> tuple[str, ...]:
    """Options of a run over the folder of images."""
    return _run(demand, loader__num_workers=workers, loader__batch_size=batch)


def _always(start: Start) -> Callable[[re.Match[str]], Start]:
    return lambda said: start


def _workers(dataset: str, demand: float, *stages: staging.Stage) -> Callable[..., Start]:
    """As many workers as the remedy says."""
    return lambda said: Start(loader(dataset, demand, workers=int(said[1])), stages)


_SET_WORKERS = r"num_workers(?: to|=| ?:)? ?(\d+)"
_SET_CPUS = r"(\d+) CPUs"

THREE = (
    Case(
        "quota_of_one_cpu", "cpu_quota", _SET_CPUS,
        Start(images(), (staging.local_images, groups.cpu_quota(1))),
        lambda said: Start(
            images(), (staging.local_images, groups.cpu_quota(min(_CPUS, int(said[1]))))
        ),
        free=Start(images(), (staging.local_images,)), demand_share=0.72,
    ),
    Case(
        "throttled_disk", "storage", r"limits its reads|faster disk",
        Start(images(150), (staging.disk(1_650_000),)),
        _always(Start(images(150), (staging.disk(100 << 20),))),
    ),
    Case(
        "small_shm", "shm.need", r"--shm-size=(\d+)g",
        Start(images(50, batch=128), (staging.local_images, staging.shm(64))),
        lambda said: Start(
            images(50, batch=128),
            (staging.local_images, staging.shm(1024 * int(said[1]))),
        ),
    ),
)  # fmt: skip
"""One folder of images, three conditions."""

BOTTLENECKS = (
    Case(
        "cpu_quota", "cpu_quota", _SET_CPUS,
        Start(loader("cpu", 110), (groups.cpu_quota(0.5),)),
        lambda said: Start(loader("cpu", 110), (groups.cpu_quota(int(said[1])),)),
    ),
    Case(
        "cpu_quota_many_workers", "cpu_quota", _SET_CPUS,
        Start(loader("cpu", 110, workers=8), (groups.cpu_quota(0.5),)),
        lambda said: Start(loader("cpu", 110, workers=8), (groups.cpu_quota(int(said[1])),)),
    ),
    Case(
        "one_cpu", "cpus", _SET_CPUS,
        Start(loader("cpu", 155), (staging.one_cpu,)), _always(Start(loader("cpu", 155))),
    ),
    Case(
        "slow_transform", "cpus", r"CPUs .* make that line cheaper",
        Start(loader("cpu", 400)), _always(Start(loader("cpu", 400), env={"CPU_MS": "2"})),
        in_cause=r"datasets\.py",  # the line that the run after it makes cheaper
    ),
    Case(
        "cpu_weight", "cpu_weight", r"weight|shares|request",
        Start(loader("cpu", 110), (groups.weighed(400, 2048),), quiet=False),
        _always(Start(loader("cpu", 110), (groups.weighed(40_000, 2048),), quiet=False)),
    ),
    Case(
        "neighbours", "neighbours", r"neighbours|quiet|cpuset",
        Start(loader("cpu", 155), (groups.beside(3 * _CPUS),), quiet=False),
        _always(Start(loader("cpu", 155))),
    ),
    Case(
        "few_workers", "few_workers", _SET_WORKERS,
        Start(loader("cpu", 155, workers=1)), _workers("cpu", 155),
    ),
    Case(
        "too_many_workers", "too_many_workers", _SET_WORKERS,
        Start(loader("thrashing", 180, workers=8)), _workers("thrashing", 180),
    ),
    Case(
        "helper_threads", "helper_threads", r"OMP_NUM_THREADS|set_num_threads",
        Start(loader("helpers", 110)),
        _always(Start(loader("helpers", 110), env={"OMP_NUM_THREADS": "1"})),
    ),
    Case(
        "huge_samples", "transport", r"uint8|smaller|dtype|less",
        Start(loader("huge", batch=4)),
        _always(Start(loader("huge", batch=4), env={"DTYPE": "uint8"})),
        free=Start(loader("huge", batch=4), env={"DTYPE": "uint8"}), demand_share=0.6,
    ),
    Case(
        "tiny_samples", "tiny_samples", r"whole batches|__getitems__",
        Start(loader("tiny", batch=64)), _always(Start(loader("tiny_batches"))),
        free=Start(loader("tiny_batches")), demand_share=0.6,
    ),
    Case(
        "main_process", "main_process", r"main process|loop|consum|workers",
        Start(loader("main_process", 250)),
        _always(Start(loader("main_process", 250), env={"MAIN_MS": "4"})),
    ),
    Case(
        "throttled_disk_mapped", "storage", r"limits its reads|faster disk",
        Start(loader("mapped", 150), (staging.disk(1_650_000),)),
        _always(Start(loader("mapped", 150), (staging.disk(100 << 20),))),
    ),
    Case(
        "slow_file_server", "storage_unaccounted", _SET_WORKERS,
        Start(images(150), (staging.file_server(open=0.05),)),
        lambda said: Start(
            images(150, workers=int(said[1])), (staging.file_server(open=0.05),)
        ),
    ),
    Case(
        "remote_latency", "remote_latency", _SET_WORKERS,
        Start(loader("remote", 220), (staging.server(0.02, threads=True),)),
        _workers("remote", 220, staging.server(0.02, threads=True)),
    ),
    Case(
        "remote_saturated", "remote_saturated", r"server|connection|bandwidth",
        Start(loader("remote", 160, workers=4), (staging.server(0.01, threads=False),)),
        _always(
            Start(loader("remote", 160, workers=4), (staging.server(0.01, threads=True),))
        ),
    ),
    Case(
        "lock", "lock", r"lock",
        Start(loader("locked", 110, workers=4)),
        _always(Start(loader("locked", 110, workers=4), env={"LOCK": "0"})),
    ),
    Case(
        "lock_around_cpu", "lock", r"lock",
        Start(loader("locked_cpu", 155, workers=2)),
        _always(Start(loader("locked_cpu", 155, workers=2), env={"LOCK": "0"})),
    ),
    Case(
        "sleep_a_sample", "latency", _SET_WORKERS,
        Start(loader("sleeping", 220)), _workers("sleeping", 220),
    ),
    Case(
        "slow_rank", "slow_rank", r"rank 1",
        Start(loader("slow_rank", 110, loader__ranks=2)),
        _always(Start(loader("slow_rank", 110, loader__ranks=2), env={"SLOW_MS": "5"})),
    ),
)  # fmt: skip


def _as_said(dataset: str, *before: staging.Stage) -> Callable[[re.Match[str]], Start]:
    """A /dev/shm as large as the remedy says."""
    return lambda said: Start(
        ("--skip=shm", *loader(dataset, 1)), (staging.shm(1024 * int(said[1])), *before)
    )


_SMALL_LISTS = {"SIDE": "32", "BATCH": "256"}  # as many descriptors as a batch has samples
_SOON = {"loader__timeout_s": 8, "stats__no_batch_s": 8}

FAILURES = (
    Case(
        "small_shm_not_foreseen", "dataloader.completed", r"--shm-size=(\d+)g",
        Start(("--skip=shm", *loader("large", 1)), (staging.shm(32),)), _as_said("large"),
        in_cause="/dev/shm",
    ),
    Case(
        "small_shm_lists", "dataloader.completed", r"--shm-size=(\d+)g",
        Start(("--skip=shm", *loader("list_collate", 1, **_SOON)), (staging.shm(64),)),
        _as_said("list_collate"), in_cause="/dev/shm",
    ),
    Case(
        "small_shm_no_batches", "dataloader.completed", r"--shm-size=(\d+)g",
        Start(("--skip=shm", *loader("no_batches", 1, **_SOON)), (staging.shm(64),)),
        _as_said("no_batches"), in_cause="/dev/shm",
    ),
    Case(
        "no_temporary_folder", "shm.temporary_folder", r"--tmpfs /tmp",
        Start(loader("cpu", 20), (staging.read_only_root(),)),
        _always(Start(loader("cpu", 20), (staging.read_only_root("/tmp"),))),
    ),
    Case(
        "corrupt_files", "dataloader.corrupt_samples", r"replace these files",
        Start(images(20), (staging.broken_images(400),)),
        _always(Start(images(20), (staging.broken_images(400, mended=True),))),
    ),
    Case(
        "volume_not_mounted", "dataloader.data", r"mounted",
        Start(images(20), (staging.empty_folder,)),
        _always(Start(images(20), (staging.local_images,))),
    ),
    Case(
        "open_files", "dataloader.completed", r"ulimit -n (\d+)",
        Start(loader("list_collate", 1, **_SOON), (staging.open_files(256),), _SMALL_LISTS),
        lambda said: Start(
            loader("list_collate", 1), (staging.open_files(int(said[1])),), _SMALL_LISTS
        ),
        in_cause="open files",
    ),
    Case(
        "open_files_foreseen", "limits.nofile", r"ulimit -n (\d+)",
        Start(("--check=limits", *loader("cpu", 20)), (staging.open_files(100),)),
        lambda said: Start(
            ("--check=limits", *loader("cpu", 20)), (staging.open_files(int(said[1])),)
        ),
    ),
    Case(
        "processes", "dataloader.completed", r"--pids-limit",
        Start(loader("cpu", 20, workers=8), (groups.pids(12),)),
        _always(Start(loader("cpu", 20, workers=8), (groups.pids(200),))),
        in_cause="process",
    ),
    Case(
        "workers_per_cpu", "limits.workers_per_cpu", _SET_WORKERS,
        Start(("--check=limits", *loader("cpu", 20, workers=8 * _CPUS))),
        lambda said: Start(("--check=limits", *loader("cpu", 20, workers=int(said[1])))),
    ),
    Case(
        "out_of_memory", "dataloader.completed", r"memory limit by at least ([\d.]+) GiB",
        Start(loader("hungry", 20), (groups.memory(1400),)),
        lambda said: Start(
            loader("hungry", 20), (groups.memory(1400 + round(1024 * float(said[1]))),)
        ),
        in_cause="memory limit",
    ),
    Case(
        "slow_start", "dataloader.start_up", r"fork",
        Start(loader("sleeping", 40, loader__multiprocessing_context="spawn"),
              env={"SLOW_IMPORT": "6"}),
    ),
    Case(
        "raises", "dataloader.completed", r"\w", Start(loader("raising", 20)),
        in_cause=r"KeyError.*label.*datasets\.py",
    ),
    Case(
        "ragged", "dataloader.completed", r"\w", Start(loader("ragged", 20)),
        in_cause=r"size|shape|stack",
    ),
    Case(
        "never_returns", "dataloader.no_batch", r"num_workers=0",
        Start(loader("hanging", 20, **_SOON)),
    ),
    Case(
        "crashes", "dataloader.completed", r"faulthandler", Start(loader("crashing", 20)),
        in_cause="crashed",
    ),
    Case(
        "cannot_be_pickled", "dataloader.completed", r"fork|lambda|top level|pickl",
        Start(loader("unpicklable", 20, loader__multiprocessing_context="spawn")),
        in_cause="pickle",
    ),
)  # fmt: skip

CASES = (*THREE, *BOTTLENECKS, *FAILURES)
