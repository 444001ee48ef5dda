"""Trials on real loaders: what helps is found, what does not is not, and every end is one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from preflight.checks.contract import Unit
from preflight.data.generated import generate
from preflight.facts import Processes, Shm
from preflight.machine.process_memory import most_private_gib, parse_private_gib
from preflight.machine.root import host
from preflight.measure import trials
from preflight.measure.closing import worker_pids
from preflight.measure.counters import Counters
from preflight.measure.counting import counted, worker_init
from preflight.measure.dataset import EndlessShuffle, SampleDataset
from preflight.measure.loader import OpenLoader, opened
from preflight.measure.model_rate import Costs
from preflight.measure.read_budget import ReadBudget
from preflight.measure.reopen import reopened
from preflight.measure.room import refused
from preflight.measure.search import Setting
from preflight.measure.stopping import Block
from preflight.measure.trials import AsItIs, what_if
from preflight.measure.user_data import Chained
from preflight.scratch import Scratch
from tests import making

pytestmark = pytest.mark.timeout(90)

SLEEP_S = 0.02


class Sleeping(Dataset[int]):
    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> int:
        time.sleep(SLEEP_S)
        return index


class Raising(Sleeping):
    def __getitem__(self, index: int) -> int:
        raise OSError("the server is gone")


class Spent(ReadBudget):
    spent = True


class Streamed(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for index in range(10_000):
            time.sleep(SLEEP_S)
            yield index


def unit(cpus: float = 2.0, **changes: Any) -> Unit:
    base = making.job()
    facts = making.facts()
    job = making.job(
        num_workers=2, batch_size=4,
        stats=base.stats.model_copy(update={"stage_s": 0.4, "warmup_s": 0.1}),
        **changes,
    )  # fmt: skip
    cpu = facts.cpu.model_copy(update={"effective": cpus})
    return Unit(
        subject="rank 0", machine=host(), limits=making.limits("dataloader"), job=job,
        facts=facts.model_copy(update={"cpu": cpu}), earlier={}, scratch=Scratch("test"),
    )  # fmt: skip


def loader_of(dataset: Any, workers: int = 2, kind: Any = "dataset", **own: Any) -> OpenLoader:
    counters = Counters.create(max(1, workers))
    if not isinstance(dataset, IterableDataset) and "batch_sampler" not in own:
        own.setdefault("sampler", EndlessShuffle(len(dataset), 1))
    if "batch_sampler" not in own:
        own.setdefault("batch_size", 4)
    loader: DataLoader[Any] = DataLoader(
        counted(dataset, counters), num_workers=workers,
        worker_init_fn=worker_init(counters) if workers else None, **own,
    )  # fmt: skip
    return opened(loader, counters, kind=kind)


def as_it_is(loader: OpenLoader, per_s: float, costs: Costs | None, **changes: Any) -> AsItIs:
    block = Block(dt_s=1.0, samples=max(1, round(per_s)), disturbance=0.0, own_share=0.1)
    now = AsItIs(
        opened=loader, blocks=[block] * 8, costs=costs, first_batch_s=0.3, worker_gib=None,
        budget=ReadBudget(unit()), pace_samples_per_s=None,
    )  # fmt: skip
    return replace(now, **changes)


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


WAITS = Costs(worker_cpu_s=0.0005, main_cpu_s=0.0001, wait_s=SLEEP_S)


def test_a_data_set_that_sleeps_wants_more_workers() -> None:
    now = as_it_is(loader_of(Sleeping()), 2 / SLEEP_S, WAITS)
    found, best = what_if(unit(), now, soon(9.0))
    assert [(t.num_workers, t.prefetch_factor) for t in found.trials[:2]] == [(2, 2), (4, 2)]
    first, second = (trial.samples_per_s.value for trial in found.trials[:2])
    assert first == 100.0 and second > 1.3 * first
    assert best is not None and best.num_workers >= 4
    assert best.samples_per_s.value > 1.3 * first
    assert best.call is not None and f"num_workers={best.num_workers}" in best.call
    assert not worker_pids()


@pytest.mark.parametrize(("now", "ends"), [(90.0, True), (108.0, False)])
def test_the_search_ends_at_what_the_gpu_consumes(now: float, ends: bool) -> None:
    """115 samples/s: under 0.9 of it something is missing, and 120 are surely enough."""
    limits = making.limits("dataloader", demand_samples_per_s=115.0)
    found, best = what_if(
        replace(unit(), limits=limits), as_it_is(loader_of(Sleeping()), now, WAITS), soon(9.0)
    )
    assert (len(found.trials) == 2) == ends
    assert best is not None and (best.num_workers == 4) == ends


def test_a_data_set_that_computes_on_few_cpus_wants_none() -> None:
    computes = Costs(worker_cpu_s=0.004, main_cpu_s=0.0001)
    found, best = what_if(unit(), as_it_is(loader_of(Sleeping()), 480.0, computes), soon(9.0))
    assert len(found.trials) == 1 and best is not None and best.num_workers == 2
    assert found.reason is not None and "wait for nothing but CPUs" in found.reason
    assert found.cpus_needed == 1  # for the floor of 100 samples/s


def test_what_a_worker_raises_ends_the_search_and_nothing_else() -> None:
    now = as_it_is(loader_of(Raising()), 100.0, WAITS)
    found, best = what_if(unit(), now, soon(9.0))
    assert found.reason is not None and "the server is gone" in found.reason
    assert len(found.trials) == 1 and best is not None and best.num_workers == 2
    assert not worker_pids()


def test_without_time_nothing_is_tried() -> None:
    found, _ = what_if(unit(), as_it_is(loader_of(Sleeping()), 100.0, WAITS), soon(0.5))
    assert found.reason == "there was no time left for it"


def test_a_trial_that_gives_nothing_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Sleeping):
        def __getitem__(self, index: int) -> int:
            time.sleep(300)
            return index

    monkeypatch.setattr("preflight.measure.trial._START_S", 0.5)
    found, _ = what_if(unit(), as_it_is(loader_of(Hanging()), 100.0, WAITS), soon(9.0))
    assert found.reason is not None and "not every worker finished a sample" in found.reason
    assert not worker_pids()


def test_a_setting_that_is_too_slow_leaves_time_for_others() -> None:
    class Starving(Sleeping):
        def __getitem__(self, index: int) -> int:
            worker = get_worker_info()
            if worker is not None and worker.id >= 2:
                time.sleep(300)
            return super().__getitem__(index)

    found, best = what_if(unit(), as_it_is(loader_of(Starving()), 100.0, WAITS), soon(6.0))
    assert [trial.num_workers for trial in found.trials] == [2, 1]
    assert any("4 workers" in note and "not every worker" in note for note in found.notes)
    assert best is not None and best.num_workers == 2
    assert not worker_pids()


def test_a_read_budget_and_a_pace_end_the_search() -> None:
    now = as_it_is(loader_of(Sleeping()), 100.0, WAITS)
    spent, _ = what_if(unit(), replace(now, budget=Spent(unit())), soon(9.0))
    assert len(spent.trials) == 1 and "max_read_gib" in str(spent.reason)
    paced, _ = what_if(unit(), replace(now, pace_samples_per_s=40.0), soon(9.0))
    assert len(paced.trials) == 2
    assert paced.trials[1].samples_per_s.value < 100  # four workers were held to it


def test_of_several_ranks_one_alone_is_compared_with_itself() -> None:
    several = unit(cpus=4.0, ranks=2)
    loader = loader_of(Sleeping())
    same, _ = what_if(several, as_it_is(loader, 2 / SLEEP_S, WAITS), soon(9.0))
    assert [t.num_workers for t in same.trials[:2]] == [2, 4]
    assert same.trials[0].samples_per_s.value != 100.0  # measured, not taken over
    shared, _ = what_if(several, as_it_is(loader, 20.0, WAITS), soon(9.0))
    assert len(shared.trials) == 1 and "share more than CPUs" in str(shared.reason)


def test_a_rank_alone_gets_no_more_than_its_part_of_the_cpus() -> None:
    """Each of a hundred ranks has a hundredth of two CPUs: a sample's CPU time bounds it."""
    crowd = unit(cpus=2.0, ranks=100)
    found, _ = what_if(crowd, as_it_is(loader_of(Sleeping()), 1e6, WAITS), soon(3.0))
    assert found.trials and found.trials[0].samples_per_s.value < 0.8 * 2 / SLEEP_S


def test_what_does_not_fit_is_not_tried_and_said() -> None:
    small = unit()
    shm = small.facts.shm
    assert shm is not None
    tight = shm.model_copy(update={"free_gib": small.job.shm_bytes() / 2**30})
    small = replace(small, facts=small.facts.model_copy(update={"shm": tight}))
    found, _ = what_if(small, as_it_is(loader_of(Sleeping()), 100.0, WAITS), soon(9.0))
    assert len(found.trials) == 1
    assert any("3 workers" in note and "/dev/shm" in note for note in found.notes)


def facts_with(**changes: Any) -> Unit:
    made = unit()
    return replace(made, facts=made.facts.model_copy(update=changes))


PROCESSES = {"pids_current": 10, "nproc": None, "memlock_bytes": None}
SHM = {"size_gib": 1.0, "fs_type": "tmpfs", "read_only": False, "stale_gib": 0.0, "stale_files": ()}


@pytest.mark.parametrize(
    ("made", "worker_gib", "why"),
    [
        (unit(), None, None),
        (facts_with(processes=Processes(pids_max=90, nofile=None, **PROCESSES)), None, "80 still"),
        (facts_with(processes=Processes(pids_max=None, nofile=300, **PROCESSES)), None, "open fi"),
        (facts_with(shm=Shm(free_gib=0.001, **SHM)), None, "of /dev/shm, which has 0.00"),
        (unit(), 30.0, "16 workers x 30 GiB"),
    ],
)  # fmt: skip
def test_each_bound_refuses_in_its_own_words(
    made: Unit, worker_gib: float | None, why: str | None
) -> None:
    said = refused(made, made.job, Setting(16, 2), worker_gib)
    assert said == why if why is None else why in str(said)


def test_the_shm_checks_margin_counts() -> None:
    made = unit()
    need_gib = made.job.shm_bytes() / 2**30
    snug = made.facts.shm and made.facts.shm.model_copy(update={"free_gib": 1.1 * need_gib})
    made = replace(made, facts=made.facts.model_copy(update={"shm": snug}))
    assert refused(made, made.job, Setting(2, 2), None) is None
    made = replace(made, earlier={"shm": {"need_gib": 1.25 * need_gib}})
    assert "/dev/shm" in str(refused(made, made.job, Setting(2, 2), None))


def test_a_loader_is_the_same_in_all_but_its_workers() -> None:
    def collate(items: list[int]) -> list[int]:
        return items

    theirs = loader_of(
        Sleeping(), kind="dataloader", batch_sampler=[[1, 2], [3]], collate_fn=collate, timeout=7
    )
    again = reopened(theirs, unit().job, 0, Setting(5, 3), Counters.create(5), 9)
    assert (again.num_workers, again.prefetch_factor, again.timeout) == (5, 3, 7)
    assert again.collate_fn is collate
    assert list(again.batch_sampler or ()) == [[1, 2], [3]]
    assert reopened(theirs, unit().job, 0, Setting(1, 1), Counters.create(1), 9).batch_size is None


def test_a_worker_init_fn_of_the_users_is_kept() -> None:
    def theirs(worker_id: int) -> None:
        """Nothing."""

    loader = loader_of(Sleeping(), kind="dataloader")
    loader.torch_loader.worker_init_fn = Chained(theirs, worker_init(loader.counters))
    counters = Counters.create(3)
    again = reopened(loader, unit().job, 0, Setting(3, 2), counters, 9).worker_init_fn
    assert isinstance(again, Chained)
    assert again.theirs is theirs and again.ours.counters is counters


def test_other_samples_are_drawn_of_a_folder() -> None:
    job = unit().job
    raw = {"codec": "raw", "encoded_bytes": 64, "shape": (4, 4)}
    job = job.model_copy(update={"sample": job.sample.model_copy(update=raw)})
    source, counters = generate(job.sample, 1, None), Counters.create(2)
    dataset = counted(SampleDataset(source, job.sample, 1, counters), counters)
    loader = DataLoader(dataset, sampler=EndlessShuffle(64, 1), batch_size=4, num_workers=2)
    ours = opened(loader, counters, source=source)
    again = reopened(ours, job, 0, Setting(3, 2), Counters.create(3), 2)
    assert [i for i, _ in zip(again.sampler, range(8), strict=False)] != [
        i for i, _ in zip(loader.sampler, range(8), strict=False)
    ]
    assert len([batch for batch, _ in zip(again, range(3), strict=False)]) == 3


def test_an_iterable_data_set_and_a_loader_without_workers() -> None:
    stream, best = what_if(
        unit(), as_it_is(loader_of(Streamed(), kind="iterable_dataset"), 100.0, WAITS), soon(4.0)
    )
    assert [t.num_workers for t in stream.trials[:2]] == [2, 4]
    assert best is not None and best.call is not None and "persistent" not in best.call
    in_process = loader_of(Sleeping(), workers=0, kind="dataloader")
    found, best = what_if(unit(), as_it_is(in_process, 1 / SLEEP_S, WAITS), soon(6.0))
    assert found.trials[0].num_workers == 0 and best is not None and best.num_workers > 0


def test_a_loader_of_its_own_class_is_left_alone() -> None:
    class Theirs(DataLoader[int]):
        pass

    loader = loader_of(Sleeping(), kind="dataloader")
    loader.torch_loader.__class__ = Theirs
    found, _ = what_if(unit(), as_it_is(loader, 100.0, WAITS), soon(9.0))
    assert "Theirs cannot be made again" in str(found.reason)


def test_the_rate_of_cached_data_is_that_without_the_wait() -> None:
    loader = replace(loader_of(Sleeping()), source=generate(making.job().sample, 1, None))
    costs = Costs(worker_cpu_s=0.004, wait_s=0.016)
    now = as_it_is(loader, 100.0, costs)
    assert trials._cached(unit(data="/data"), now) == 500.0
    assert trials._cached(unit(data=None), now) is None  # generated: they lie in memory
    opaque = as_it_is(loader_of(Sleeping()), 100.0, costs)
    assert trials._cached(unit(data="/data"), opaque) is None
    quick = as_it_is(loader, 100.0, Costs(worker_cpu_s=0.004, wait_s=0.0001))
    assert trials._cached(unit(data="/data"), quick) is None


def test_memory_of_its_own() -> None:
    text = "55d0-7ffd [rollup]\nRss: 900 kB\nPrivate_Clean: 1024 kB\nPrivate_Dirty: 2048 kB\n"
    assert parse_private_gib(text) == pytest.approx(3072 / 2**20)
    assert parse_private_gib("Rss: 900 kB\n") is None
    import os

    assert (most_private_gib(host(), [os.getpid()]) or 0) > 0
    assert most_private_gib(host(), []) is None
