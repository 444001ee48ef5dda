"""Makes a counted loader of what the factory of --dataset returns, and puts its errors into words.

A DataLoader stays the user's in everything but its counting and a time limit; a Dataset or an
IterableDataset gets the job's loader. User code runs from here on, in this process and its workers.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import multiprocessing
from torch.utils.data import DataLoader, Dataset, IterableDataset

from preflight.checks.contract import Unavailable, Unit
from preflight.diagnosis.job_faults import FAULTS
from preflight.diagnosis.loader_failures import explain
from preflight.measure.counters import Counters
from preflight.measure.counting import CountedCollate, WorkerInit, counted, worker_init
from preflight.measure.dataset import EndlessShuffle
from preflight.measure.loader import OpenLoader, build_loader, opened
from preflight.measure.notes import Notes
from preflight.measure.standing_in import StandingIn
from preflight.measure.telling import Telling, say_where_it_ends
from preflight.user_code import (
    UserCodeError,
    environment,
    kind_of,
    load,
    may_be_data,
    said,
    set_environment,
)

_MUST_RETURN = "it must return a Dataset, an IterableDataset or a DataLoader of torch"
_BY_HAND = "call it by hand in this image, with the same environment"
_A_WORKER_ENDED = "DataLoader worker (pid"
_LOOK = "run it alone with num_workers=0; the traceback is in the output kept"


def open_user_data(unit: Unit, spec: str, rank: int) -> OpenLoader:
    """The loader of one rank over what `spec` names.

    Raises:
        Unavailable: it raised, or gave nothing that can be loaded.
    """
    job = unit.job
    set_environment(environment(job, rank))
    say_where_it_ends()
    before = set(threading.enumerate())
    made = _made(unit, spec)
    threads = tuple(t.name for t in threading.enumerate() if t not in before)
    if isinstance(made, DataLoader):
        return _theirs(unit, spec, made, threads)
    counters = Counters.create(job.num_workers)
    if isinstance(made, IterableDataset):
        dataset = counted(made, counters, endless=True)
        loader = build_loader(unit, dataset, counters, None)
        epochs = _Epochs(loader, spec, None)
        return opened(loader, counters, epochs=epochs, kind="iterable_dataset", threads=threads)
    if not isinstance(made, Dataset) and not (may_be_data(made) and hasattr(made, "__getitem__")):
        raise Unavailable(f"{spec} returned {kind_of(made)}; {_MUST_RETURN}")
    shuffle = EndlessShuffle(_length(made, spec), job.seed, rank, job.ranks)
    loader = build_loader(unit, StandingIn(made, counters), counters, shuffle)
    epochs = _Epochs(loader, spec, None)
    return opened(loader, counters, epochs=epochs, kind="dataset", threads=threads)


def _made(unit: Unit, spec: str) -> Any:
    unit.progress(f"importing {spec}")
    try:
        found = load(spec)
    except UserCodeError as error:
        raise Unavailable(f"--dataset {spec}: {_one_clause(str(error))}; {_BY_HAND}") from error
    if isinstance(found, (Dataset, DataLoader)) or not callable(found):
        return found
    unit.progress(f"calling {spec}")
    try:
        return found()
    except (Exception, SystemExit) as error:
        told = _told(error, f"{spec} raised", _BY_HAND)
        if told is None:
            raise
        raise told from error


def _theirs(unit: Unit, spec: str, loader: DataLoader[Any], threads: tuple[str, ...]) -> OpenLoader:
    """Their DataLoader as it is, its data set counted."""
    workers, dataset = loader.num_workers, loader.dataset
    if not isinstance(dataset, IterableDataset):
        _check_not_empty(loader, spec)
    counters = Counters.create(max(1, workers))
    # Without automatic batching the data set makes the batches, or the sampler does.
    samples_in = SamplesInItem(unit.job.sample.shape) if loader.batch_sampler is None else None
    # torch refuses a plain assignment, for the sampler's sake; ours is as long as the one before.
    loader.__dict__["dataset"] = (
        counted(dataset, counters, samples_in=samples_in)
        if isinstance(dataset, IterableDataset)
        else StandingIn(dataset, counters, samples_in)
    )
    loader.collate_fn = CountedCollate(loader.collate_fn, counters)
    if not workers:
        return opened(loader, counters, epochs=_Epochs(loader, spec, counters), kind="dataloader")
    loader.worker_init_fn = Telling(
        Notes.create(), Chained(loader.worker_init_fn, worker_init(counters, lines=True))
    )
    # A time limit of their own stands: without one a worker that is stuck would never be told of.
    loader.timeout = loader.timeout or unit.job.loader.timeout_s
    # A factory that tried its loader: workers that live on know nothing of our counting.
    loader.__dict__["_iterator"] = None
    return opened(
        loader, counters, epochs=_Epochs(loader, spec, None), samples_in=samples_in,
        kind="dataloader", threads=threads,
    )  # fmt: skip


@dataclass(frozen=True)
class Chained:
    """Their worker_init_fn, then ours: a worker has started when theirs is done."""

    theirs: Any
    ours: WorkerInit

    def __call__(self, worker_id: int) -> None:
        """Called by torch in the worker."""
        if self.theirs is not None:
            self.theirs(worker_id)
        self.ours(worker_id)


@dataclass(frozen=True)
class SamplesInItem:
    """How many samples are in what a data set returns when torch makes no batches of it.

    The length of the first array in it, as a training loop would ask; one, when that array has the
    shape of a single sample.
    """

    sample_shape: tuple[int, ...]

    def __call__(self, item: Any) -> int:
        """Samples in one item."""
        array = _first_array(item)
        if array is None or array.ndim == 0 or tuple(array.shape) == self.sample_shape:
            return 1
        return len(array)


def _first_array(item: Any) -> Any:
    if hasattr(item, "shape") and hasattr(item, "ndim"):
        return item
    inner = item.values() if isinstance(item, Mapping) else item
    if isinstance(item, (list, tuple, Mapping)):
        return next((a for a in map(_first_array, inner) if a is not None), None)
    return None


class _Epochs:
    """One epoch of a loader after the other, with what user code raises put into words."""

    def __init__(self, loader: DataLoader[Any], spec: str, in_process: Counters | None) -> None:
        """`in_process`: where a loader without workers counts."""
        self._loader, self._spec, self._in_process = loader, spec, in_process
        self._epochs = 0

    def __iter__(self) -> Iterator[Any]:
        # No generator: iter() has to start the workers now, in the thread that calls it.
        try:
            batches = iter(self._loader)
        except Exception as error:
            told = self._unsent(error) or _told(error, f"loading from {self._spec} raised", _LOOK)
            if told is None:
                raise
            raise told from error
        if self._in_process is not None:
            self._in_process.slot(0).start()
        self._epochs += 1
        return _Epoch(batches, self._spec, first=self._epochs == 1)

    def _unsent(self, error: Exception) -> Unavailable | None:
        context = self._loader.multiprocessing_context or multiprocessing
        method = context.get_start_method()
        if method == "fork" or "pickle" not in f"{type(error).__name__} {error}".lower():
            return None
        return Unavailable(
            f"the data set of {self._spec} cannot be sent to workers that are started by {method} "
            f"({_one_clause(said(error))}); keep lambdas, locks, open files and local classes out "
            "of it, or set loader.multiprocessing_context to fork"
        )


class _Epoch:
    """The batches of one epoch."""

    def __init__(self, batches: Iterator[Any], spec: str, *, first: bool) -> None:
        self._batches, self._spec = batches, spec
        self._first, self._given = first, False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._given:
                raise
            raise Unavailable(
                f"{self._spec} gave no batch: its data end before one is full; check what it "
                "finds here, and batch size, workers and drop_last against the number of samples"
                if self._first
                else f"the data of {self._spec} gave nothing when they were begun a second time; "
                "let __iter__ begin anew each time it is called"
            ) from None
        except Exception as error:
            told = _told(error, f"loading from {self._spec} raised", _LOOK)
            if told is None:
                raise
            raise told from error
        self._given = True
        return batch


def _told(error: BaseException, what: str, remedy: str) -> Unavailable | None:
    """An error in one sentence; None where the tables of failures have words for it, or torch.

    The traceback goes to the output, as for any error that is not caught.
    """
    known = explain(f"{type(error).__name__}: {error}", "", None, None)
    if known is not None or str(error).startswith(_A_WORKER_ENDED):
        return None
    traceback.print_exception(type(error), error, error.__traceback__)
    for fault in FAULTS:
        if any(pattern in str(error) for pattern in fault.patterns):
            what, remedy = f"{what.removesuffix(' raised')} {fault.does}:", fault.remedy
    return Unavailable(f"{what} {_one_clause(said(error))}; {remedy}")


def _check_not_empty(loader: DataLoader[Any], spec: str) -> None:
    """Raises Unavailable when it can be seen that no epoch will give a batch."""
    try:
        batches, samples = len(loader), len(loader.dataset)  # type: ignore[arg-type]
    except Exception:  # a sampler without a length: the first epoch will show it
        return
    if batches:
        return
    if not samples:
        raise Unavailable(_empty(spec))
    raise Unavailable(
        f"{spec} gives no batch: its {samples} samples are fewer than one batch of "
        f"{loader.batch_size} for each rank, and drop_last leaves the rest out; name more data, "
        "or lower its batch_size"
    )


def _length(dataset: Any, spec: str) -> int:
    try:
        length = len(dataset)
    except Exception as error:
        raise Unavailable(
            f"the length of the data set that {spec} returned cannot be asked "
            f"({_one_clause(said(error))}); give it a __len__, or return a DataLoader with a "
            "sampler"
        ) from error
    if length < 1:
        raise Unavailable(_empty(spec))
    return length


def _empty(spec: str) -> str:
    return f"the data set of {spec} is empty; check the path and the split that it reads here"


def _one_clause(text: str) -> str:
    # What follows the first semicolon of a text is taken for what to do.
    return text.replace("; ", ", ")
