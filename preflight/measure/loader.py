"""Opens the loader that is measured: the job's settings over its data, or what --dataset gives.

Whoever measures gets something to iterate, as often as it likes, and the counters of its workers.
Importing this file imports torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from torch.utils.data import DataLoader, Dataset, Sampler

from preflight.checks.contract import Unit
from preflight.data.source import Source
from preflight.job import DataState, Job
from preflight.measure.counters import Counters
from preflight.measure.counting import CountedCollate, SamplesIn, counted, worker_init
from preflight.measure.dataset import EndlessShuffle, SampleDataset
from preflight.measure.notes import Notes
from preflight.measure.samples import find
from preflight.measure.telling import Telling

Kind = Literal["dataset", "iterable_dataset", "dataloader"]


class NoSamples(Exception):
    """The data path holds nothing that could be loaded."""

    def __init__(self, state: DataState | None) -> None:
        super().__init__(state)
        self.state = state


@dataclass(frozen=True)
class OpenLoader:
    """A loader, and the settings that it really has."""

    loader: Iterable[Any]
    """May be iterated again and again; an epoch without a batch raises Unavailable."""
    torch_loader: DataLoader[Any]
    """What is behind `loader`, for those who ask it for its settings or its data set."""
    counters: Counters
    workers: int
    """0: it loads in the process that iterates it, which counts in the first slot."""
    batch_size: int | None
    """None: a sampler of its own, or the data set, makes batches of a size that only they know."""
    prefetch_factor: int | None
    source: Source | None = None
    """Encoded samples; None: only the job's own data set can load them."""
    samples_in: SamplesIn | None = None
    """For a data set that may make batches itself: how many samples one item is."""
    kind: Kind | None = None
    """What the factory of --dataset returned."""
    threads: tuple[str, ...] = ()
    """Of the job's own code, running before the workers are started."""

    def fields(self) -> dict[str, Any]:
        """What the reading says of it."""
        return {
            "num_workers": self.workers, "batch_size": self.batch_size,
            "prefetch_factor": self.prefetch_factor, "dataset_kind": self.kind,
            "pin_memory": self.torch_loader.pin_memory,
            "files": None if self.source is None else len(self.source),
        }  # fmt: skip

    def in_flight(self) -> int | None:
        """Samples that may be loaded ahead of the consumer; None where that cannot be known."""
        if self.batch_size is None:
            return None
        return self.workers * (self.prefetch_factor or 0) * self.batch_size

    def shm_need_gib(
        self, sample_bytes: int | None, batch_bytes: int | None, ranks: int
    ) -> float | None:
        """What batches of the job's own data set take of /dev/shm; None where their size is hidden.

        B x (W x P + 2) of each rank, as `Job.shm_bytes` has it.
        """
        if batch_bytes is None and sample_bytes is not None:
            # Without automatic batching an item of the data set is the batch.
            alone = self.torch_loader.batch_sampler is None
            size = 1 if alone else self.batch_size
            batch_bytes = None if size is None else size * sample_bytes
        if batch_bytes is None or not self.workers:
            return None
        in_flight = self.workers * (self.prefetch_factor or 0) + 2
        return round(ranks * batch_bytes * in_flight / 2**30, 4)

    def epoch_of(self, batches: int, *, persistent_workers: bool) -> DataLoader[Any] | None:
        """The same loader with epochs of so many batches; None where epochs are the user's own."""
        like, batch_size = self.torch_loader, self.batch_size
        if self.kind not in (None, "dataset") or batch_size is None:
            return None
        return DataLoader(
            like.dataset,
            batch_size=batch_size,
            sampler=list(islice(like.sampler, batches * batch_size)),
            **{**settings_of(like), "persistent_workers": persistent_workers},
        )

    def as_job(self, job: Job) -> Job:
        """The job with this loader's own numbers in place of the thresholds'."""
        own = {
            "batch_size": self.batch_size or job.loader.batch_size,
            "prefetch_factor": self.prefetch_factor or job.loader.prefetch_factor,
        }
        loader = job.loader.model_copy(update=own)
        return job.model_copy(update={"num_workers": self.workers, "loader": loader})


def open_loader(unit: Unit, rank: int) -> OpenLoader:
    """The loader of one rank of the job, not started yet.

    Raises:
        NoSamples: --data has none.
        Unavailable: what --dataset names gives nothing that can be loaded.
    """
    if unit.job.dataset is not None:
        # It builds loaders, too, and knows this file.
        from preflight.measure.user_data import open_user_data

        return open_user_data(unit, unit.job.dataset, rank)
    found, job = find(unit), unit.job
    if found.source is None:
        raise NoSamples(found.state)
    counters = Counters.create(job.num_workers)
    dataset = SampleDataset(found.source, job.sample, job.seed, counters)
    shuffle = EndlessShuffle(len(found.source), job.seed, rank, job.ranks)
    loader = build_loader(unit, counted(dataset, counters), counters, shuffle)
    return opened(loader, counters, source=found.source)


def build_loader(
    unit: Unit, dataset: Dataset[Any], counters: Counters, sampler: Sampler[int] | None
) -> DataLoader[Any]:
    """The job's DataLoader over `dataset`, which is `counted`; no sampler for an iterable one."""
    job, loader = unit.job, unit.job.loader
    # torch warns of more workers than the affinity mask has CPUs; the limits check says it better,
    # with the quota, and the warning would stand in the output kept of a failure.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    context = loader.multiprocessing_context
    made: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=job.num_workers,
        prefetch_factor=loader.prefetch_factor,
        # An iterable one may be used up at its end: new workers get it as it was at first.
        persistent_workers=loader.persistent_workers and sampler is not None,
        pin_memory=loader.pin_memory and bool(unit.facts.gpus),
        in_order=loader.in_order,
        timeout=loader.timeout_s,
        multiprocessing_context=None if context == "default" else context,
        worker_init_fn=Telling(
            Notes.create(), worker_init(counters, lines=job.dataset is not None)
        ),
        drop_last=True,
    )
    made.collate_fn = CountedCollate(made.collate_fn, counters)
    return made


def settings_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """The arguments that made it, but for its data set and how that is put into batches."""
    return {
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "in_order": loader.in_order,
        "timeout": loader.timeout,
        "multiprocessing_context": loader.multiprocessing_context,
        "generator": loader.generator,
        "worker_init_fn": loader.worker_init_fn,
    }


def opened(
    loader: DataLoader[Any],
    counters: Counters,
    *,
    epochs: Iterable[Any] | None = None,
    source: Source | None = None,
    samples_in: SamplesIn | None = None,
    kind: Kind | None = None,
    threads: tuple[str, ...] = (),
) -> OpenLoader:
    """What there is to say of torch's loader; `epochs` is iterated in its place."""
    return OpenLoader(
        loader=loader if epochs is None else epochs,
        torch_loader=loader,
        counters=counters,
        workers=loader.num_workers,
        batch_size=loader.batch_size,
        prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
        source=source,
        samples_in=samples_in,
        kind=kind,
        threads=threads,
    )
