"""Reader processes on real files: what they read, how much, from where, and what they leave."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.machine.mounts import READS_ACCOUNTED, file_system_of, read_mounts
from preflight.machine.root import Root, host
from preflight.measure import fetching
from preflight.measure.fetching import FetchResult, Readers
from preflight.measure.reader_set import ReaderSet
from tests import making

pytestmark = pytest.mark.timeout(60)

SIZE = 40_000
STATS = making.job().stats.model_copy(update={"block_s": 0.05})
PLENTY = 1 << 40


def write(folder: Path, count: int, size: int = SIZE) -> list[str]:
    """Files that are on the disk, and still in memory."""
    for number in range(count):
        (folder / f"{number:05}.jpg").write_bytes(os.urandom(size))
    paths = sorted(str(path) for path in folder.iterdir())
    each(paths, lambda fd: os.fsync(fd))
    return paths


def each(paths: Sequence[str], do: Any) -> None:
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        do(fd)
        os.close(fd)


def drop(paths: Sequence[str]) -> None:
    each(paths, lambda fd: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED))


def hits(paths: Sequence[str]) -> float:
    """Percent of the bytes that are in memory, told by reading them."""
    before = fetching_io()
    each(paths, lambda fd: os.read(fd, 1 << 30))
    return 100 * (1 - min(1.0, (fetching_io() - before) / sum(map(os.path.getsize, paths))))


def fetching_io() -> int:
    words = Path("/proc/self/io").read_text().split()
    return int(words[words.index("read_bytes:") + 1])


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    on = file_system_of(read_mounts(host()), str(tmp_path.resolve()))
    if on is None or on.fs_type not in READS_ACCOUNTED:
        pytest.skip("the temporary folder is not on a disk whose reads are counted")
    return tmp_path


def readers(paths: Sequence[str], count: int = 2, machine: Root | None = None) -> Readers:
    return Readers(
        paths, count, machine=machine or host(), cpu=making.facts().cpu, stats=STATS, seed=1
    )


def test_each_file_is_read_once_and_cold_is_proved(disk: Path) -> None:
    paths = write(disk, 200)
    drop(paths)
    with readers(paths, 3) as all_readers:
        first = all_readers.first_touch(30, max_bytes=PLENTY)
        assert first.ended == "files"
        assert 0 < first.samples <= 200 and first.bytes_read == first.samples * SIZE
        assert first.hit_percent is not None and first.hit_percent <= 5
        assert first.brought_in == pytest.approx(first.samples, abs=2)
        assert first.rate is not None and first.rate.value > 0
        assert first.gb_per_s is not None and first.opens_per_s is not None
        assert first.opens_per_s >= first.rate.value / 3
        warm = all_readers.again(0.3, max_bytes=PLENTY)
        assert (warm.ended, warm.brought_in) == ("time", 0)
        assert warm.hit_percent == pytest.approx(100, abs=2)


def test_only_what_was_brought_in_is_let_go(disk: Path) -> None:
    paths = write(disk, 200)
    mine, others = paths[:100], paths[100:]
    drop(mine)
    with readers(paths) as all_readers:
        # Slowly, so that no reader is done before the others have read their share.
        first = all_readers.first_touch(30, max_bytes=PLENTY, pace_samples_per_s=400)
        assert first.hit_percent == pytest.approx(50, abs=5)
        assert all_readers.let_go() == first.brought_in == pytest.approx(100, abs=6)
    assert hits(others) > 95
    assert hits(mine) < 10


def test_evict_reads_from_the_disk_what_is_in_memory(disk: Path) -> None:
    paths = write(disk, 100)
    with readers(paths) as all_readers:
        first = all_readers.first_touch(30, max_bytes=PLENTY, evict=True)
        assert first.hit_percent is not None and first.hit_percent <= 5


def test_memory_never_looks_like_a_disk() -> None:
    folder = Path("/dev/shm", f"preflight-test-{os.getpid()}")
    folder.mkdir()
    try:
        result = fetch(write(folder, 50))
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    assert (result.hit_percent, result.brought_in) == (100.0, 0)


def fetch(paths: Sequence[str], **changes: Any) -> FetchResult:
    usual: dict[str, Any] = {"seconds": 30, "max_bytes": PLENTY, "count": 2, "machine": host()}
    given = {**usual, **changes}
    set_of = Readers(
        paths, given.pop("count"), machine=given.pop("machine"), cpu=making.facts().cpu,
        stats=STATS, seed=1,
    )  # fmt: skip
    with set_of as readers:
        result = readers.first_touch(given.pop("seconds"), **given)
        if result.ended != "no_answer":
            readers.let_go()
        return result


def test_without_proof_there_is_no_share_of_hits(tmp_path: Path) -> None:
    """A /proc without io: a sandbox, or a kernel that does not count."""
    paths = write(tmp_path, 20)
    assert fetch(paths, machine=Root(str(tmp_path))).hit_percent is None


@pytest.mark.parametrize(("count", "megabytes"), [(1, 1.0), (4, 0.5), (4, 2.5), (8, 0.1)])
def test_a_budget_of_bytes_is_held(tmp_path: Path, count: int, megabytes: float) -> None:
    paths = write(tmp_path, 100)
    budget = int(megabytes * 1e6)
    result = fetch(paths, count=count, max_bytes=budget, pace_samples_per_s=400)
    assert result.ended == "bytes"
    assert budget - count * SIZE <= result.bytes_read <= budget


def test_a_pace_is_held_and_reached(tmp_path: Path) -> None:
    paths = write(tmp_path, 400, size=100)
    result = fetch(paths, count=3, pace_samples_per_s=200, seconds=1)
    assert result.samples <= 200 * result.seconds + 3 * 2
    # Three readers that each held to it alone would have read all 400.
    assert result.ended == "time" and result.samples < 300


def test_a_clear_rate_ends_it_early(tmp_path: Path) -> None:
    paths = write(tmp_path, 4000, size=100)
    with readers(paths) as all_readers:
        result = all_readers.first_touch(
            30, limit_samples_per_s=1, max_bytes=PLENTY, pace_samples_per_s=400
        )
        assert result.ended == "decided"
        assert result.decision is not None and result.decision.verdict == "reached"


def test_files_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    paths = [*write(tmp_path, 20), str(tmp_path / "gone.jpg"), str(tmp_path)]
    result = fetch(paths, count=1)
    assert (result.samples, result.errors) == (20, 2)


def test_names_that_are_no_text_and_an_empty_file(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe x.jpg")
    Path(odd).write_bytes(b"")
    result = fetch([odd], count=4)
    assert (result.samples, result.bytes_read, result.errors) == (1, 0, 0)
    assert (result.gb_per_s, result.hit_percent) == (0.0, None)


def test_nothing_can_be_read_at_all(tmp_path: Path) -> None:
    result = fetch([str(tmp_path / "gone.jpg")])
    assert (result.samples, result.errors, result.rate) == (0, 1, None)


def test_a_reader_that_dies_is_told_of(tmp_path: Path) -> None:
    paths = write(tmp_path, 100, size=100)
    with readers(paths) as all_readers:
        os.kill(all_readers._set.pids[0], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="ended early"):
            all_readers.first_touch(30, max_bytes=PLENTY, pace_samples_per_s=10)


def test_storage_that_goes_silent_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that nobody writes to stands for a file that does not open."""
    monkeypatch.setattr(fetching, "ANSWER_LIMIT_S", 0.3)
    os.mkfifo(tmp_path / "a.jpg")
    with readers([str(tmp_path / "a.jpg")]) as all_readers:
        pids = all_readers._set.pids
        result = all_readers.first_touch(30, max_bytes=PLENTY)
    assert (result.ended, result.samples, result.rate) == ("no_answer", 0, None)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_readers_belong_to_our_group_and_leave_nothing(tmp_path: Path) -> None:
    paths = write(tmp_path, 10)
    open_before = len(os.listdir("/proc/self/fd"))
    with readers(paths, 4) as all_readers:
        pids = all_readers._set.pids
        assert len(pids) == 4
        assert {os.getpgid(pid) for pid in pids} == {os.getpgrp()}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_no_process_to_be_had_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **more: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    open_before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("preflight.measure.reader_set.subprocess.Popen", refuse)
    with pytest.raises(BlockingIOError):
        ReaderSet([[b"/a"]])
    assert len(os.listdir("/proc/self/fd")) == open_before
