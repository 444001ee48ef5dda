"""One reader in this process: what it counts, when it stops, what it lets go."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.measure import reader as words
from preflight.measure.reader import Reader, main, slot_at

pytestmark = pytest.mark.timeout(20)

NO_LIMIT = 1 << 40


class Rig:
    """A reader with its memory, one of two."""

    def __init__(self, paths: list[Path]) -> None:
        self.words = memoryview(mmap.mmap(-1, 8 * slot_at(2))).cast("Q")
        self.reader = Reader(self.words, 0, 2, [os.fsencode(path) for path in paths])

    def __getitem__(self, word: int) -> int:
        return self.words[slot_at(0) + word]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    paths = [tmp_path / f"{number}.jpg" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(b"x" * (1000 * (number + 1)))
    return Rig(paths)


def test_each_file_once(rig: Rig) -> None:
    rig.reader.obey(f"first 0 {NO_LIMIT} 0")
    assert (rig[words.FINISHED], rig[words.BYTES], rig[words.PASSES]) == (5, 15_000, 1)
    assert rig[words.BEGAN_NS] <= rig[words.LAST_NS]
    assert (rig[words.READING], rig[words.ERRORS], rig[words.SPENT]) == (0, 0, 0)


def test_nobody_begins_a_file_that_is_too_much_for_all(rig: Rig) -> None:
    rig.words[slot_at(1) + words.CLAIMED] = 4000
    rig.reader.obey("first 0 10_000 0")
    assert (rig[words.BYTES], rig[words.CLAIMED], rig[words.SPENT]) == (6000, 6000, 1)


def test_a_file_that_is_gone_claims_nothing(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "2.jpg").unlink()
    rig.reader.obey(f"first 0 {NO_LIMIT} 0")
    assert (rig[words.FINISHED], rig[words.BYTES], rig[words.ERRORS]) == (4, 12_000, 1)


def test_a_stop_is_seen_before_the_next_file(rig: Rig) -> None:
    rig.words[words.STOP] = 1
    rig.reader.obey(f"first 0 {NO_LIMIT} 0")
    rig.reader.obey(f"again 0 {NO_LIMIT} 0")
    assert (rig[words.FINISHED], rig[words.PASSES]) == (0, 2)


def test_again_goes_round_until_the_bytes_are_spent(rig: Rig) -> None:
    rig.reader.obey(f"first 0 {NO_LIMIT} 0")
    rig.reader.obey("again 0 40_000 0")
    assert rig[words.BYTES] == 40_000  # 15,000, 15,000 again, and 1, 2, 3, 4 thousand


def test_what_was_in_memory_already_is_not_let_go(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    advised: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *given: advised.append(given[-1]))
    rig.reader.obey(f"first 0 {NO_LIMIT} 0")
    rig.reader.obey("let_go")
    assert (rig[words.BROUGHT_IN], rig[words.LET_GO], advised) == (0, 0, [])


def test_what_came_from_the_disk_is_let_go(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files 1 and 3 do; a directory's blocks beside them do not make more of it."""
    advised: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *given: advised.append(given[-1]))
    monkeypatch.setattr(words, "getrusage", usage([0, 0, 16, 16, 24 + 16, 40]))
    rig.reader.obey(f"first 0 {NO_LIMIT} 0")
    assert rig[words.DISK_BYTES] == 2000 + 4000
    rig.reader.obey("let_go")
    assert (rig[words.BROUGHT_IN], rig[words.LET_GO]) == (2, 2)
    assert advised == [os.POSIX_FADV_DONTNEED] * 2


def usage(blocks: list[int]) -> Callable[[int], object]:
    left = iter(blocks)

    class Usage:
        def __init__(self) -> None:
            self.ru_inblock = next(left)

    return lambda who: Usage()


def test_orders_come_as_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jpg").write_bytes(b"abc")
    memory, paths = os.memfd_create("memory"), os.memfd_create("paths")
    os.ftruncate(memory, 8 * slot_at(1))
    name = os.fsencode(tmp_path / "a.jpg")
    os.write(paths, b"other\0" + name)
    orders = tmp_path / "orders"
    orders.write_text(f"first 0 {NO_LIMIT} 0\nlet_go\n")
    with orders.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        main([str(number) for number in (memory, paths, 0, 1, 6, len(name))])
    seen = memoryview(os.pread(memory, 8 * slot_at(1), 0)).cast("Q")
    assert (seen[slot_at(0) + words.FINISHED], seen[slot_at(0) + words.PASSES]) == (1, 2)
    os.close(memory)
    os.close(paths)
