"""A data path that is there and is no good: each way has its own words and blame."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command.hanging import Storage, storage
from tests.command.images import write_images
from tests.command.running import SMALL_LOADER, Gate, Ran, assert_one_verdict

pytestmark = pytest.mark.timeout(120)
UNCOVERED = True

LOADER = ("run", "--thresholds=cpu", "--check=dataloader", *SMALL_LOADER)
# Nothing is measured on such a path, so that shm need not run first.
NO_LOADER = (*LOADER, "--skip=shm")


def empty(data: Path) -> None:
    data.mkdir()


def a_file(data: Path) -> None:
    data.write_text("")


def no_image(data: Path) -> None:
    (data / "a").mkdir(parents=True)
    (data / "a" / "labels.csv").write_text("1,2\n")


def only_empty_folders(data: Path) -> None:
    (data / "a" / "b").mkdir(parents=True)


def a_pipe_named_like_an_image(data: Path) -> None:
    data.mkdir()
    os.mkfifo(data / "image.jpg")


def assert_data_fails(ran: Ran, state: str, blame: str) -> None:
    assert_one_verdict(ran, 1)
    (finding,) = ran.result("dataloader")["findings"]
    assert (finding["id"], finding["outcome"]) == ("dataloader.data", "fail")
    assert (finding["observed"], finding["blame"]) == (state, blame)
    assert finding["cause"] and finding["remedy"] and finding["subject"] in ran.stdout


@pytest.mark.parametrize(("make", "state", "blame"), [
    (empty, "empty", "data"),
    (only_empty_folders, "empty", "data"),
    (a_file, "not_a_folder", "setup"),
    (no_image, "no_image", "data"),
    (a_pipe_named_like_an_image, "no_image", "data"),
])  # fmt: skip
def test_a_path_without_images(
    gate: Gate, make: Callable[[Path], None], state: str, blame: str
) -> None:
    make(gate.folder / "data")
    ran = gate.run(*NO_LOADER, "--data=data")
    assert_data_fails(ran, state, blame)
    gate.assert_nothing_left()


@pytest.mark.parametrize("closed", ["the folder", "every file", "the folder above"])
def test_a_path_that_this_user_may_not_read(gate: Gate, closed: str) -> None:
    data = gate.folder / "above" / "data"
    write_images(data, 2)
    paths = {
        "the folder": [data],
        "the folder above": [data.parent],
        "every file": data.glob("*/*"),
    }
    for path in paths[closed]:
        path.chmod(0)
    ran = gate.run(*NO_LOADER, f"--data={data}", wrapped=without_the_rights_of_root())
    data.parent.chmod(0o755)
    data.chmod(0o755)
    assert_data_fails(ran, "unreadable", "setup")


def without_the_rights_of_root() -> tuple[str, ...]:
    """As another user would be: modes of files count. The interpreter may lie in /root, though."""
    if os.geteuid() != 0:
        return ()
    command = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    try:
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    except OSError:
        pass
    pytest.skip("setpriv cannot take rights away here")


def test_a_look_that_starts_late_is_not_a_path_that_hangs(gate: Gate) -> None:
    """An image on a slow file server: Python's start is no answer of the data path's."""
    empty(gate.folder / "data")
    running = gate.start(*NO_LOADER, "--data=data", standin="hang:start")
    gate.mark()
    time.sleep(6)  # longer than a path may take
    (gate.folder / "mark.go").touch()
    assert_data_fails(running.end(), "empty", "data")


@pytest.fixture
def images(gate: Gate) -> Iterator[Storage]:
    """A file system of images that hangs on command."""
    with storage(gate.folder) as mounted:
        write_images(mounted.source, 300)
        yield mounted
        mounted.heal()
        gate.assert_nothing_left()  # what was abandoned ends with the hang


@pytest.mark.parametrize("operation", ["getattr", "readdir"])
def test_a_path_that_hangs_at_the_first_look(gate: Gate, images: Storage, operation: str) -> None:
    images.hang(operation)
    ran = gate.run(*NO_LOADER, f"--data={images.folder}")
    assert_data_fails(ran, "no_answer", "shared")
    assert "importing torch" not in ran.stderr


def test_a_path_whose_server_is_gone(gate: Gate, images: Storage) -> None:
    images.die()
    ran = gate.run(*NO_LOADER, f"--data={images.folder}")
    assert_one_verdict(ran, 1)
    assert ran.finding("dataloader.data")["outcome"] == "fail"


def test_a_path_that_hangs_when_it_is_listed(gate: Gate, images: Storage) -> None:
    running = gate.start(*NO_LOADER, f"--data={images.folder}")
    running.wait_for("importing torch")
    images.hang("readdir", "getattr")
    assert_data_fails(running.end(), "no_answer", "shared")


def test_a_path_that_hangs_before_the_first_batch(gate: Gate, images: Storage) -> None:
    running = gate.start(*NO_LOADER, f"--data={images.folder}", "--set=stats.no_batch_s=4",
                         "--set=loader.timeout_s=4")  # fmt: skip
    running.wait_for("importing torch")
    images.hang("read")
    ran = running.end()
    assert ran.code in (1, 3)  # 3 where neighbours took the CPUs meanwhile
    assert_one_verdict(ran, ran.code)
    assert ran.result("dataloader")["outcome"] == ("fail" if ran.code == 1 else "error")


def test_a_path_that_hangs_while_it_is_measured(gate: Gate, images: Storage) -> None:
    running = gate.start(*NO_LOADER, f"--data={images.folder}", "--set=loader.timeout_s=3",
                         "--set=stats.warmup_s=60")  # fmt: skip
    running.wait_for("warming up")
    images.hang("open")
    ran = running.end()
    assert_one_verdict(ran, 3)
    finding = ran.finding("dataloader.completed")
    assert "no batch" in finding["cause"] and finding["remedy"]
    assert ran.result("dataloader")["partial"]


def test_a_report_folder_that_hangs_costs_the_reports_and_not_the_verdict(
    gate: Gate, images: Storage
) -> None:
    folder = images.folder / "reports"
    running = gate.start("run", "--thresholds=quick", f"--report-dir={folder}", reports=False,
                         standin="hang:shm")  # fmt: skip
    gate.mark()
    images.hang("create", "mkdir", "getattr", "open")
    (gate.folder / "mark.go").touch()
    ran = running.end()
    assert ran.code == 0
    assert "reports are lost" in ran.stderr and "no answer in 5 s" in ran.stderr
    assert ran.stdout.startswith("PASS node")


@pytest.mark.parametrize("named_by", ["flag", "environment"])
def test_a_report_folder_that_hangs_from_the_start(
    gate: Gate, images: Storage, named_by: str
) -> None:
    images.hang("mkdir", "getattr", "create")
    folder = str(images.folder / "reports")
    flag = [f"--report-dir={folder}"] if named_by == "flag" else []
    env = {} if flag else {"PREFLIGHT_REPORT_DIR": folder}
    ran = gate.run("run", "--thresholds=quick", *flag, env=env, reports=False)
    assert ran.code == (2 if flag else 0)
    assert "no answer in 5 s" in ran.stderr


def test_two_corrupt_images_of_300_are_a_warning_that_names_them(gate: Gate) -> None:
    corrupt = write_images(gate.folder / "data", 300, corrupt=2)
    ran = gate.run(*LOADER, "--data=data", "--set=dataloader.max_corrupt_percent=5")
    assert_one_verdict(ran, 0)
    finding = ran.finding("dataloader.corrupt_samples")
    assert (finding["outcome"], finding["blame"]) == ("warn", "data")
    assert all(name in finding["cause"] for name in corrupt)
    assert 0 < finding["observed"] < 5


def test_a_third_of_corrupt_images_is_the_data_sets_fault(gate: Gate) -> None:
    write_images(gate.folder / "data", 300, corrupt=90)
    ran = gate.run(*LOADER, "--data=data")
    assert_one_verdict(ran, 1)
    finding = ran.finding("dataloader.corrupt_samples")
    assert (finding["outcome"], finding["blame"]) == ("fail", "data")
    assert 20 < finding["observed"] < 40
    assert ran.result("dataloader")["reading"]["corrupt_samples"] > 0


def test_nothing_but_corrupt_images_is_the_data_sets_fault_too(gate: Gate) -> None:
    write_images(gate.folder / "data", 20, corrupt=20)
    ran = gate.run(*LOADER, "--data=data")
    assert_one_verdict(ran, 1)
    (fail,) = [
        entry for entry in ran.result("dataloader")["findings"] if entry["outcome"] == "fail"
    ]
    assert fail["blame"] == "data"
    gate.assert_nothing_left()
