"""Stages alone, on data whose cost is known: within a factor, since the machine is not ours."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from preflight.data.generated import Generated, generate
from preflight.job import Sample, Stats
from preflight.machine.root import host
from preflight.measure import stages, timed_stages
from preflight.measure.dataset import SampleDataset
from preflight.measure.stage_timing import Block, StageFailed, timed
from preflight.measure.stages import Share, Tried, tried
from preflight.model import Rate, Stage
from tests import making

pytestmark = pytest.mark.timeout(60)

STATS = making.job().stats.model_copy(update={"stage_s": 0.6})
SHORT = STATS.model_copy(update={"stage_s": 0.05})
ONE = Share(effective_cpus=1.0, ranks=1, workers=1)
JPEG = Sample(codec="jpeg", encoded_bytes=30_000, shape=(3, 96, 96), dtype="uint8")
RAW = Sample(codec="raw", encoded_bytes=4096, shape=(64, 64), dtype="uint8")


def roughly(seen: float, expected: float) -> bool:
    return expected / 2 < seen < expected * 2


def sound(stage: Stage) -> None:
    """An interval around the value, from enough blocks."""
    rate = stage.samples_per_s
    assert rate.unit == "samples/s" and rate.blocks >= 8
    assert rate.low is not None and 0 < rate.low < rate.value
    assert rate.high is None or rate.high > rate.value


def burn(cpu_s: float) -> None:
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


class Busy(Dataset[int]):
    """Two milliseconds of CPU a sample."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        assert 0 <= index < 100
        burn(0.002)
        return index


class Waiting(Busy):
    """Ten milliseconds of waiting a sample."""

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        return index


class Batched(Busy):
    """Loads a batch at once: 4 ms of CPU, however many samples."""

    def __len__(self) -> int:
        return 96  # whole batches: none has an index of two epochs

    def __getitems__(self, indices: list[int]) -> list[int]:
        assert len(set(indices)) == 8
        burn(0.004)
        return indices


class Streamed(IterableDataset[int]):
    def __init__(self, items: int) -> None:
        self.items = items

    def __iter__(self) -> Iterator[int]:
        for item in range(self.items):
            burn(0.002)
            yield item


def own(dataset: Any, share: Share = ONE, stats: Stats = STATS, **settings: Any) -> Stage:
    loader = DataLoader(dataset, **{"batch_size": 8, **settings})
    return timed_stages.own_dataset(loader, share, stats, host())


@pytest.fixture(scope="module")
def photos() -> Generated:
    source = generate(JPEG.model_copy(update={"encoded_bytes": 30_000}), 1, None)
    assert isinstance(source, Generated)
    return Generated(source.contents[:8])


def test_decode_costs_what_the_loaders_own_code_costs(photos: Generated) -> None:
    stage = timed_stages.decode(photos, JPEG, 1, ONE, STATS)
    dataset, began_s = SampleDataset(photos, JPEG, 1), time.thread_time()
    for _ in range(10):
        for index in range(len(photos)):
            dataset[index]
    expected_s = (time.thread_time() - began_s) / (10 * len(photos))
    assert stage.name == "decode"
    assert roughly(stage.samples_per_s.value, 1 / expected_s)
    assert stage.cpu_ms_per_sample is not None
    assert roughly(stage.cpu_ms_per_sample, 1e3 * expected_s)
    assert stage.note is not None and stage.note.endswith("ms of CPU a sample")
    sound(stage)


@pytest.mark.parametrize(
    ("share", "cpus"),
    [
        (Share(8.0, ranks=1, workers=4), 4.0),  # no more CPUs than workers
        (Share(8.0, ranks=4, workers=4), 2.0),  # no more than this rank's part
        (Share(0.5, ranks=1, workers=4), 0.5),
    ],
)
def test_a_rank_has_its_part_of_the_cpus(photos: Generated, share: Share, cpus: float) -> None:
    stage = timed_stages.decode(photos, JPEG, 1, share, STATS)
    assert stage.cpu_ms_per_sample is not None
    expected = cpus * 1e3 / stage.cpu_ms_per_sample
    assert stage.samples_per_s.value == pytest.approx(expected, rel=0.01)


def test_raw_bytes_are_decoded_too() -> None:
    stage = timed_stages.decode(generate(RAW, 1, None), RAW, 1, ONE, STATS)
    assert stage.samples_per_s.value > 1_000
    sound(stage)


def test_decode_takes_others_for_corrupt_samples(photos: Generated) -> None:
    mixed = Generated((*photos.contents, b"\xff\xd8 not an image"))
    sound(timed_stages.decode(mixed, JPEG, 1, ONE, STATS))


def test_one_stage_that_raises_leaves_the_others(photos: Generated) -> None:
    broken = Generated((b"broken",) * 20)
    seen = [
        tried("decode", lambda: timed_stages.decode(broken, JPEG, 1, ONE, SHORT)),
        tried("decode", lambda: timed_stages.decode(photos, JPEG, 1, ONE, SHORT)),
        tried("copy", lambda: stages.copy(None, "GPU 0", 1000)),
    ]
    assert seen[0].stage is None
    assert seen[0].reason is not None and "16 samples in a row" in seen[0].reason
    assert "generated sample" in seen[0].reason  # the name that it has in the source
    assert seen[1].stage is not None and seen[1].reason is None
    assert seen[2] == Tried("copy", None, "does not apply here")


def test_the_reason_is_the_end_of_a_traceback() -> None:
    def fail() -> None:
        raise ValueError("Caught ValueError in worker\nOriginal Traceback\n  File x\n boom\n")

    def silent() -> None:
        raise KeyError

    assert tried("decode", fail).reason == "ValueError: boom"
    assert tried("decode", silent).reason == "KeyError: no reason given"


class Vanished(Generated):
    def fetch(self, index: int) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", "one.jpg")


def test_files_that_went_away_are_a_reason() -> None:
    seen = tried("decode", lambda: timed_stages.decode(Vanished((b"x",) * 4), JPEG, 1, ONE, SHORT))
    assert seen.reason is not None
    assert seen.reason.startswith("no sample could be read: ") and "one.jpg" in seen.reason


def test_only_so_many_bytes_are_kept(photos: Generated, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []

    class Counting(Generated):
        def fetch(self, index: int) -> bytes:
            fetched.append(index)
            return super().fetch(index)

    source = Counting(photos.contents * 10)
    timed_stages.decode(source, JPEG, 1, ONE, SHORT)
    assert len(set(fetched)) == len(fetched) == 32
    fetched.clear()
    monkeypatch.setattr(timed_stages, "_KEPT_BYTES", 70_000)
    timed_stages.decode(source, JPEG, 1, ONE, SHORT)
    assert len(fetched) == 3


def test_a_data_set_that_computes_is_bound_by_the_cpus() -> None:
    stage = own(Busy(), Share(effective_cpus=2.0, ranks=2, workers=4))
    assert roughly(stage.samples_per_s.value, 500)
    assert stage.cpu_ms_per_sample is not None and roughly(stage.cpu_ms_per_sample, 2.0)
    assert stage.note == "the data set's own __getitem__"
    sound(stage)


def test_a_data_set_that_waits_is_bound_by_its_workers() -> None:
    stage = own(Waiting(), Share(effective_cpus=1.0, ranks=1, workers=4))
    assert roughly(stage.samples_per_s.value, 400)
    assert stage.cpu_ms_per_sample is not None and stage.cpu_ms_per_sample < 5
    sound(stage)


def test_a_data_set_that_loads_batches_is_asked_for_batches() -> None:
    stage = own(Batched())
    assert stage.cpu_ms_per_sample is not None and roughly(stage.cpu_ms_per_sample, 0.5)


def test_indices_are_those_of_the_loaders_own_sampler() -> None:
    asked: list[int] = []

    class Asked(Busy):
        def __getitem__(self, index: int) -> int:
            asked.append(index)
            return super().__getitem__(index)

    own(Asked(), stats=SHORT, batch_sampler=[[7, 3], [5]], batch_size=1)
    assert asked[:7] == [7, 3, 5, 7, 3, 5, 7]


def test_a_data_set_that_makes_batches_says_how_large_they_are() -> None:
    class Whole(Busy):
        def __getitem__(self, index: int) -> Any:
            burn(0.004)
            return [0] * 8

    loader = DataLoader(Whole(), batch_size=None)
    stage = timed_stages.own_dataset(loader, ONE, STATS, host(), samples_in=len)
    assert stage.cpu_ms_per_sample is not None and roughly(stage.cpu_ms_per_sample, 0.5)


def test_a_stream_is_begun_again() -> None:
    stage = own(Streamed(5))
    assert stage.cpu_ms_per_sample is not None and roughly(stage.cpu_ms_per_sample, 2.0)
    assert stage.note == "the data set's own iterator"


def test_an_empty_stream_is_a_reason() -> None:
    reason = tried("decode", lambda: own(Streamed(0))).reason
    assert reason == "the data set gives no sample in the main process"


def test_a_data_set_that_hangs_is_left_behind() -> None:
    stuck = threading.Event()

    class Stuck(Busy):
        def __getitem__(self, index: int) -> int:
            stuck.wait(30)
            return index

    try:
        with pytest.raises(StageFailed, match=r"did not end in 0\.25 s"):
            own(Stuck(), stats=SHORT)
    finally:
        stuck.set()


def test_torch_runs_with_one_thread_as_in_a_worker() -> None:
    threads: set[int] = set()

    class Asking(Busy):
        def __getitem__(self, index: int) -> int:
            threads.add(torch.get_num_threads())
            return super().__getitem__(index)

    own(Asking(), stats=SHORT)
    assert threads == {1}


def test_what_the_first_samples_cost_beyond_their_own_is_not_counted() -> None:
    """Three loads set something up; the clock is ours: a second of CPU for each, else a tenth."""
    loads, cpu_s = 0, 0.0

    def load() -> int:
        nonlocal loads, cpu_s
        loads += 1
        cpu_s += 1.0 if loads <= 3 else 0.1
        return 1

    blocks = timed(load, SHORT, lambda: cpu_s, warm_up=3)
    assert [block.cpu_s / block.samples for block in blocks] == pytest.approx([0.1] * len(blocks))


def test_decode_warms_up_on_each_of_its_samples(
    photos: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def spy(*arguments: Any, warm_up: int) -> list[Block]:
        asked.append(warm_up)
        return timed(*arguments, warm_up=warm_up)

    monkeypatch.setattr(timed_stages, "timed", spy)
    timed_stages.decode(photos, JPEG, 1, ONE, SHORT)
    assert asked == [len(photos)]


@pytest.mark.parametrize(
    ("wall_s", "cpu_s", "delay_s", "wait_s"),
    [(1.0, 0.2, 0.3, 0.05), (1.0, 0.2, 0.0, 0.08), (1.0, 3.0, 0.0, 0.0), (1.0, 0.9, 0.2, 0.0)],
)
def test_waiting_is_neither_on_a_cpu_nor_in_the_queue_for_one(
    wall_s: float, cpu_s: float, delay_s: float, wait_s: float
) -> None:
    spent = Block(10, wall_s, cpu_s, delay_s).costs()
    assert spent.worker_cpu_s == pytest.approx(cpu_s / 10)
    assert spent.wait_s == pytest.approx(wait_s)


def test_one_slow_sample_has_a_rate_without_an_interval() -> None:
    class Slow(Busy):
        def __getitem__(self, index: int) -> int:
            time.sleep(0.08)
            return index

    rate = own(Slow(), stats=SHORT).samples_per_s
    assert rate.blocks < 8 and rate.low is None and rate.high is None
    assert roughly(rate.value, 1 / 0.08)


def test_files_that_were_just_written_are_fetched_from_the_page_cache(tmp_path: Path) -> None:
    source = generate(RAW, 1, str(tmp_path))
    stage = timed_stages.fetch_generated(source, ONE, STATS)
    assert stage.name == "fetch" and stage.note == "page cache"
    assert stage.samples_per_s.value > 1_000
    sound(stage)
    os.unlink(source.name(0))
    seen = tried("fetch", lambda: timed_stages.fetch_generated(source, ONE, SHORT))
    assert seen.reason is not None and seen.reason.startswith("FileNotFoundError: ")


def test_samples_in_memory_are_not_fetched(photos: Generated) -> None:
    seen = tried("fetch", lambda: timed_stages.fetch_generated(photos, ONE, SHORT))
    assert seen.reason == "the generated samples lie in memory: nothing is fetched"


def gb_per_s(value: float) -> Rate:
    return Rate(
        value=value, low=value - 1, high=value + 1, unit="GB/s", blocks=10, discarded=0,
        samples=(value,),
    )  # fmt: skip


def storage(**changes: Any) -> dict[str, Any]:
    rate = gb_per_s(9800.0).model_copy(update={"unit": "samples/s"})
    return {
        "first_touch_samples_per_s": rate.model_dump(mode="json"), "cache_state": "cold",
        "cpu_ms_per_sample": 0.05, "paced_samples_per_s": None, **changes,
    }  # fmt: skip


def test_a_ranks_part_of_what_the_storage_gave() -> None:
    stage = stages.fetch(storage(), ranks=4)
    assert stage is not None and stage.name == "fetch"
    rate = stage.samples_per_s
    assert (rate.value, rate.low, rate.high, rate.samples) == (2450.0, 2449.8, 2450.2, (2450.0,))
    assert stage.cpu_ms_per_sample == 0.05


@pytest.mark.parametrize(
    ("state", "note"),
    [("cold", "first touch"), ("cached", "page cache"), ("memory", "memory"),
     ("unknown", "first touch or cache: unknown"), (None, None)],
)  # fmt: skip
def test_where_the_bytes_came_from(state: str | None, note: str | None) -> None:
    stage = stages.fetch(storage(cache_state=state), ranks=1)
    assert stage is not None and stage.note == note


def test_reads_that_were_held_to_a_pace_are_no_rate() -> None:
    seen = tried("fetch", lambda: stages.fetch(storage(paced_samples_per_s=10_000.0), ranks=1))
    assert seen.stage is None and seen.reason is not None and "held to 10,000/s" in seen.reason
    # Slower than the pace: that is the storage's own rate.
    assert stages.fetch(storage(paced_samples_per_s=20_000.0), ranks=1) is not None


def test_without_the_storage_check_there_is_no_fetch() -> None:
    assert stages.fetch(None, ranks=1) is None
    assert stages.fetch(storage(first_touch_samples_per_s=None), ranks=1) is None


def test_the_copy_is_that_of_this_ranks_own_gpu() -> None:
    readings = [
        {"subject": "GPU 0", "h2d_gb_per_s": gb_per_s(53.1).model_dump(mode="json")},
        {"subject": "GPU 1", "h2d_gb_per_s": gb_per_s(26.0).model_dump(mode="json")},
        {"subject": "GPU 2", "h2d_gb_per_s": None},
        None,
    ]
    stage = stages.copy(readings, "GPU 1", 602_112)
    assert stage is not None
    assert stage.note == "26.0 GB/s" and stage.cpu_ms_per_sample is None
    assert stage.samples_per_s.value == pytest.approx(26e9 / 602_112, abs=0.1)
    assert stages.copy(readings, "GPU 2", 602_112) is None
    assert stages.copy(readings, "GPU 3", 602_112) is None
    assert stages.copy(None, None, 602_112) is None
    alone = stages.copy(readings[0], "GPU 0", 602_112)
    assert alone is not None and alone.note == "53.1 GB/s"
