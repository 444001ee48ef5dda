"""The measured loader once more, with other workers and another prefetch factor.

Data set, collate, sampler and everything else stay the job's own; samples are counted anew.
Importing this file imports torch.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from preflight.job import Job
from preflight.measure.counters import Counters
from preflight.measure.counting import CountedCollate, WorkerInit, counted, worker_init
from preflight.measure.dataset import EndlessShuffle, SampleDataset
from preflight.measure.loader import OpenLoader, settings_of
from preflight.measure.search import Setting
from preflight.measure.stage_timing import StageFailed
from preflight.measure.telling import Telling
from preflight.measure.user_data import Chained


def reopened(
    opened: OpenLoader, job: Job, rank: int, setting: Setting, counters: Counters, seed: int
) -> DataLoader[Any]:
    """The loader with another setting, not started yet; `counters` has a slot for each worker.

    Where the samples are drawn by us, `seed` draws others: those that were just read would come
    from memory.

    Raises:
        StageFailed: it is of a class of its own, which may take other arguments than torch's.
    """
    like = opened.torch_loader
    if type(like) is not DataLoader:
        raise StageFailed(f"a {type(like).__name__} cannot be made again with other settings")
    # A counted data set says itself what it was made of: the data set, its counters, the rest.
    theirs: Any = like.dataset
    inner, _, *rest = theirs.__reduce__()[1]
    dataset = type(theirs)(inner, counters, *rest)
    if opened.source is not None:
        ours = SampleDataset(opened.source, job.sample, job.seed, counters)
        dataset = counted(ours, counters)
    arguments = {
        **settings_of(like),
        "num_workers": setting.num_workers,
        "prefetch_factor": setting.prefetch_factor,
        "worker_init_fn": _init(like.worker_init_fn, counters),
    }
    if isinstance(like.collate_fn, CountedCollate):
        arguments["collate_fn"] = replace(like.collate_fn, counters=counters)
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # as for any other
    return DataLoader(dataset, **_batches(opened, job, rank, dataset, seed), **arguments)


def _batches(opened: OpenLoader, job: Job, rank: int, dataset: Any, seed: int) -> dict[str, Any]:
    """How samples are put into batches."""
    like = opened.torch_loader
    if isinstance(dataset, IterableDataset):
        return {"batch_size": like.batch_size, "drop_last": like.drop_last}
    if opened.kind != "dataloader":
        shuffle = EndlessShuffle(len(dataset), seed, rank, job.ranks)
        return {"batch_size": like.batch_size, "sampler": shuffle, "drop_last": True}
    if like.batch_sampler is not None:
        return {"batch_sampler": like.batch_sampler}
    return {"batch_size": None, "sampler": like.sampler}


def _init(before: Any, counters: Counters) -> Any:
    """The worker_init_fn, which says to `counters` that a worker has started."""
    if isinstance(before, Telling):
        return replace(before, init=_init(before.init, counters))
    ours = worker_init(counters)
    if isinstance(before, Chained):
        return replace(before, ours=ours)
    return ours if before is None or isinstance(before, WorkerInit) else Chained(before, ours)
