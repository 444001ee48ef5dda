"""The storage check through the real command: the same files on storage of four kinds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.machine.mounts import READS_ACCOUNTED, file_system_of, read_mounts
from preflight.machine.root import host
from tests.command.hanging import storage
from tests.command.images import write_images
from tests.command.running import Gate, Ran, assert_one_verdict
from tests.command.slow_disk import slow_disk

pytestmark = pytest.mark.timeout(120)
UNCOVERED = True

STORAGE = ("run", "--thresholds=cpu", "--check=storage", "--set=loader.num_workers=2")
NEEDED = 300
FILE_BYTES = 100_000


@pytest.fixture
def images(gate: Gate) -> Path:
    """JPEGs of the size of photos: what follows an image's end marker is not looked at.

    So many that a slow disk is not read through before two windows are over.
    """
    folder = gate.folder / "images"
    write_images(folder, 800)
    for path in folder.glob("*/*"):
        with path.open("ab") as file:
            file.write(os.urandom(FILE_BYTES - path.stat().st_size))
            os.fsync(file.fileno())
    return folder


def measured(ran: Ran) -> dict[str, Any]:
    reading: dict[str, Any] = ran.result("storage")["reading"]
    rate = reading["first_touch_samples_per_s"]
    assert rate["value"] > 0 and rate["unit"] == "samples/s"
    return reading


def run(gate: Gate, data: Path, *options: str, wrapped: Sequence[str] = ()) -> Ran:
    needed = f"--set=storage.min_samples_per_s={NEEDED}"
    return gate.run(*STORAGE, needed, f"--data={data}", *options, wrapped=wrapped)


def on_a_counted_disk(folder: Path) -> bool:
    on = file_system_of(read_mounts(host()), str(folder.resolve()))
    return on is not None and on.kind == "local" and on.fs_type in READS_ACCOUNTED


def test_the_same_folder_in_memory_on_a_slow_disk_and_on_a_slow_server(
    gate: Gate, images: Path
) -> None:
    """Three readings, each honest: an upper bound, a cold disk's rate, a cache nobody can see."""
    if not on_a_counted_disk(images):
        pytest.skip("the temporary folder is not on a disk whose reads are counted")
    cached = run(gate, images)
    assert_one_verdict(cached, 0)
    seen = measured(cached)
    assert (seen["cache_state"], seen["let_go_files"]) == ("cached", 0)
    assert seen["hit_percent"] > 95 and seen["first_touch_samples_per_s"]["value"] > NEEDED
    assert cached.finding("storage.cache_state")["outcome"] == "warn"

    with slow_disk(gate.folder, images, 10 << 20) as disk:
        slow = run(gate, disk.folder, wrapped=disk.wrapped)
        assert_one_verdict(slow, 1)
        seen = measured(slow)
        assert (seen["cache_state"], seen["data_on"]["fs_type"]) == ("cold", "ext4")
        assert seen["data_on"]["source"].startswith("/dev/loop")
        assert seen["hit_percent"] <= 5 and seen["let_go_files"] == seen["brought_in_files"] > 0
        # 10 MiB/s are 105 such files.
        assert 50 < seen["first_touch_samples_per_s"]["value"] < 160
        assert seen["first_touch_gb_per_s"] == pytest.approx(0.0105, rel=0.5)
        assert seen["warm_samples_per_s"]["value"] > 160
        # Under a limit that it reaches the same disk passes, and is as cold as before.
        again = gate.run(
            *STORAGE, "--set=storage.min_samples_per_s=20", f"--data={disk.folder}",
            wrapped=disk.wrapped,
        )  # fmt: skip
        assert_one_verdict(again, 0)
        assert measured(again)["cache_state"] == "cold"
        assert again.finding("storage.cache_state")["outcome"] == "pass"

    with storage(gate.folder) as server:
        shutil.copytree(images, server.source / "data")
        server.delay(open=0.05)
        remote = run(gate, server.folder / "data")
        server.heal()
        assert_one_verdict(remote, 1)
        seen = measured(remote)
        assert (seen["cache_state"], seen["data_on"]["kind"]) == ("unknown", "unknown")
        assert seen["hit_percent"] is None and seen["let_go_files"] == 0
        assert seen["first_touch_samples_per_s"]["value"] < 45
        assert "opening files" in remote.finding("storage.first_touch")["cause"]
        assert seen["paced_samples_per_s"] == 1.25 * NEEDED
        fast = gate.run(*STORAGE, "--set=storage.min_samples_per_s=2", f"--data={server.folder}")
        assert_one_verdict(fast, 0)
        assert fast.finding("storage.cache_state")["outcome"] == "warn"


def test_memory_is_judged_plainly(gate: Gate) -> None:
    data = Path("/dev/shm", f"preflight-test-{gate.tag}")
    try:
        write_images(data, 200)
        ran = run(gate, data)
    finally:
        shutil.rmtree(data)
    assert_one_verdict(ran, 0)
    seen = measured(ran)
    assert (seen["cache_state"], seen["data_on"]["fs_type"]) == ("memory", "tmpfs")
    assert ran.finding("storage.cache_state")["outcome"] == "pass"


def test_evicted_beforehand_a_cached_folder_is_cold(gate: Gate, images: Path) -> None:
    if not on_a_counted_disk(images):
        pytest.skip("the temporary folder is not on a disk whose reads are counted")
    seen = measured(run(gate, images, "--set=storage.evict=true"))
    assert (seen["cache_state"], seen["evicted"]) == ("cold", True)


def test_the_budget_of_the_run_is_held(gate: Gate, images: Path) -> None:
    ran = run(gate, images, "--set=run.max_read_gib=0.02")
    seen = measured(ran)
    assert seen["max_read_gib"] == 0.005 and 0 < seen["read_gib"] <= 0.005
    assert seen["ended"] == "bytes"


@pytest.mark.parametrize("when", ["before", "while"])
def test_storage_that_hangs_fails_and_blames_what_is_shared(gate: Gate, when: str) -> None:
    with storage(gate.folder) as server:
        write_images(server.source, 400)
        paced = "--set=storage.min_samples_per_s=20"  # so that the files last
        running = gate.start(*STORAGE, paced, f"--data={server.folder}", "--set=stats.max_s=60")
        running.wait_for("listing" if when == "before" else "files read in")
        server.hang("open")
        ran = running.end()
        server.heal()
        assert_one_verdict(ran, 1)
        finding = ran.finding("storage.data")
        assert (finding["observed"], finding["blame"]) == ("no_answer", "shared")
        gate.assert_nothing_left()


def test_without_data_it_costs_nothing(gate: Gate) -> None:
    ran = gate.run("run", "--thresholds=cpu", "--check=limits", "--check=storage")
    (finding,) = ran.result("storage")["findings"]
    assert (finding["outcome"], finding["id"]) == ("skip", "storage.applies")
    assert "--data" in finding["cause"]
    assert ran.result("storage")["duration_s"] == 0
