from __future__ import annotations

import os
from pathlib import Path

from preflight.machine.process_io import read_bytes
from preflight.machine.root import host
from tests.fakes import write_machine

IO = "rchar: 4096\nwchar: 7\nsyscr: 2\nread_bytes: 512\n"


def test_what_reads_returned_adds_up(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {"/proc/7/io": IO, "/proc/9/io": IO.replace("4096", "1")})
    assert read_bytes(root, [7, 9, 11]) == 4097


def test_what_cannot_be_asked_is_none(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {"/proc/7/io": "rchar: many\n"})
    assert read_bytes(root, [7]) is None
    assert read_bytes(root, []) is None
    assert read_bytes(write_machine(tmp_path, {"/proc/9/io": ""}), [9]) is None


def test_our_own_reading_shows() -> None:
    before = read_bytes(host(), [os.getpid()])
    with open("/dev/zero", "rb", buffering=0) as zeros:
        zeros.read(1 << 20)
    after = read_bytes(host(), [os.getpid()])
    assert before is not None and after is not None and after - before >= 1 << 20
