from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.machine import root as root_module
from preflight.machine.root import Root, host
from tests.fakes import write_machine


def test_text_of_files_and_of_what_is_none(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {"/proc/a": "x" * 200_000, "/proc/empty": ""})
    (tmp_path / "proc/bytes").write_bytes(b"a\xff")
    assert root.read_text("/proc/a") == "x" * 200_000
    assert root.read_text("/proc/empty") == ""
    assert root.read_text("/proc/bytes") == "a\ufffd"
    for name in ("/proc", "/proc/none", "/proc/\0", "/proc/a/b"):
        assert root.read_text(name) is None


def test_reading_leaves_no_file_open(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {"/a": "x"})
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        root.read_text("/a")
        root.read_text("/")
        root.entries("/")
    assert len(os.listdir("/proc/self/fd")) == before


def test_folders_that_cannot_be_read_are_empty(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    assert root.list_dir("/none") == root.list_dir("/\0") == []
    assert root.entries("/none") == root.entries("/\0") == []
    assert root.space("/none") is None and root.space("/\0") is None


def test_entries_count_what_is_occupied_not_the_length(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "full").write_bytes(b"x" * 40_000)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/")
    found = {entry.name: entry for entry in Root(str(tmp_path)).entries("/")}
    assert found["sparse"].size < 1 << 20
    assert 40_000 <= found["full"].size < 80_000
    assert found["folder"].is_folder and not found["link"].is_folder


def test_names_that_are_not_utf8_can_be_reported(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")).touch()
    (entry,) = Root(str(tmp_path)).entries("/")
    assert entry.name == "a\ufffd"


def test_a_folder_with_very_many_names_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_module, "MOST_ENTRIES", 3)
    for n in range(5):
        (tmp_path / str(n)).touch()
    assert len(Root(str(tmp_path)).entries("/")) == 3


def test_what_may_be_written_to(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    assert root.writable("/") and not root.writable("/missing") and not root.writable("nul\0byte")


def test_system_calls_of_this_machine() -> None:
    root = host()
    assert root.affinity() == os.sched_getaffinity(0)
    assert root.uid() == os.geteuid()
    assert 0 < root.ram().free < root.ram().total
    assert root.uname().machine == os.uname().machine
    nofile = root.rlimit("RLIMIT_NOFILE")
    assert nofile.soft is None or nofile.soft > 0
