"""What a container is given: a small /dev/shm, a CPU quota, no temporary directory. Real ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.command.images import write_images
from tests.command.running import Gate, assert_one_verdict, can_mount, in_own_mounts

pytestmark = pytest.mark.timeout(120)

_CGROUP = Path("/sys/fs/cgroup")
needs_mounts = pytest.mark.skipif(not can_mount(), reason="mounting needs root (unshare -m)")

# 256 samples of 150 kB are 38.5 MB a batch: not two of them fit into 64 MiB.
BIG_BATCHES = ("--set=loader.batch_size=256", "--set=loader.num_workers=1",
               "--set=sample.codec=raw", "--set=sample.encoded_bytes=150528",
               "--set=shm.min_free_gib=0")  # fmt: skip
DEFAULT_SHM = in_own_mounts("mount -t tmpfs -o size=64m tmpfs /dev/shm")


@needs_mounts
def test_64_mib_of_shm_fail_by_arithmetic(gate: Gate) -> None:
    ran = gate.run("run", "--thresholds=cpu", *BIG_BATCHES, wrapped=DEFAULT_SHM)
    assert_one_verdict(ran, 1)
    finding = ran.finding("shm.need")
    assert (finding["outcome"], finding["blame"]) == ("fail", "setup")
    assert (
        finding["observed"] < 0.0626
        and "64 MiB is the container engine's default" in finding["cause"]
    )
    assert_names_every_way_to_more_shm(finding["remedy"])
    (skipped,) = ran.result("dataloader")["findings"]
    assert skipped["outcome"] == "skip" and "shm" in skipped["cause"]


@needs_mounts
def test_64_mib_of_shm_kill_the_loader_itself(gate: Gate) -> None:
    ran = gate.run("run", "--thresholds=cpu", "--skip=shm", *BIG_BATCHES, wrapped=DEFAULT_SHM)
    assert_one_verdict(ran, 1)
    finding = ran.finding("dataloader.completed")
    assert (finding["outcome"], finding["blame"]) == ("fail", "setup")
    assert "/dev/shm ran full" in finding["cause"]
    assert_names_every_way_to_more_shm(finding["remedy"])
    gate.assert_nothing_left()


def assert_names_every_way_to_more_shm(remedy: str) -> None:
    assert re.search(r"docker run --shm-size=\d+g", remedy)
    assert re.search(r"Compose: shm_size: \d+gb", remedy)
    assert re.search(r"emptyDir with medium: Memory and sizeLimit: \d+Gi", remedy)


@needs_mounts
def test_a_read_only_shm_is_not_mounted_to_us(gate: Gate) -> None:
    wrapped = in_own_mounts("mount -t tmpfs -o size=1g,ro tmpfs /dev/shm")
    ran = gate.run("run", "--thresholds=quick", wrapped=wrapped)
    assert_one_verdict(ran, 1)
    assert ran.finding("shm.mounted")["outcome"] == "fail"


@contextmanager
def quota_of_one_cpu() -> Iterator[Path]:
    """A cgroup with a quota of one CPU that neighbours hardly take from; skips without one."""
    v1 = (_CGROUP / "cpu" / "cpu.cfs_quota_us").exists()
    folder = (_CGROUP / "cpu" if v1 else _CGROUP) / f"preflight-test-{os.getpid()}"
    written = (
        {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000", "cpu.shares": "262144"}
        if v1
        else {"cpu.max": "100000 100000", "cpu.weight": "10000"}
    )
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        try:
            for name, value in written.items():
                (folder / name).write_text(value)
        except OSError as error:
            pytest.skip(f"no cpu controller for a cgroup of ours: {error.strerror}")
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def test_a_cpu_quota_is_seen_and_blamed_with_the_arithmetic(gate: Gate) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a quota of one CPU binds nobody on one CPU")
    with quota_of_one_cpu() as cgroup:
        enter = f'echo $$ > {cgroup}/cgroup.procs && exec "$@"'
        ran = gate.run(
            "run", "--thresholds=cpu", "--set=loader.num_workers=2", "--set=shm.min_free_gib=0",
            "--set=dataloader.demand_samples_per_s=20000",
            wrapped=("sh", "-c", enter, "sh"),
        )  # fmt: skip
        gate.assert_nothing_left()
    assert_one_verdict(ran, 1)
    assert ran.report["facts"]["cpu"]["quota"] == 1.0
    assert ran.result("limits")["reading"]["effective_cpus"] == 1.0
    assert ran.finding("limits.workers_per_cpu")["outcome"] == "warn"
    reading, finding = ran.result("dataloader")["reading"], ran.finding("dataloader.supply")
    assert reading["quota_cpus"] == 1.0 and reading["demand_samples_per_s"] == 20000
    assert (finding["outcome"], finding["blame"]) == ("fail", "setup")
    assert "1-CPU quota" in finding["cause"]
    said = re.search(r"(\d+) CPUs \(20,000 / ([\d.,]+) x 1 = ([\d.]+)\)", finding["remedy"])
    assert said is not None, finding["remedy"]
    cpus, supply, exact = int(said[1]), float(said[2].replace(",", "")), float(said[3])
    assert (
        exact == pytest.approx(20_000 / supply, rel=0.01) and cpus - 1 < exact + 0.05 <= cpus + 0.1
    )
    assert supply == pytest.approx(finding["observed"])


def no_temporary_directory(gate: Gate) -> tuple[str, ...]:
    """/tmp and /var/tmp read-only, only the report folder writable; TMPDIR points nowhere."""
    gate.reports.mkdir()
    steps = [
        f"mount --bind {gate.reports} {gate.reports}",
        "mount --bind /tmp /tmp", f"mount --rbind {gate.reports} {gate.reports}",
        "mount -o remount,bind,ro /tmp",
        "mount --bind /var/tmp /var/tmp", "mount -o remount,bind,ro /var/tmp",
    ]  # fmt: skip
    return in_own_mounts(" && ".join(steps))


@needs_mounts
@pytest.mark.parametrize("data", ["generated", "own"])
def test_without_a_temporary_directory_there_is_still_an_answer(gate: Gate, data: str) -> None:
    write_images(gate.folder / "data", 32)
    environment = {name: None for name in os.environ if name.startswith("COVERAGE")}
    ran = gate.run(
        "run", "--thresholds=cpu", "--set=loader.num_workers=1", "--set=shm.min_free_gib=0",
        "--set=dataloader.min_samples_per_s=0.5", "--set=limits.min_memory_headroom_gib=0",
        "--set=loader.timeout_s=5", "--set=stats.no_batch_s=5",
        *(["--data", str(gate.folder / "data")] if data == "own" else []),
        wrapped=no_temporary_directory(gate), cwd="/proc",
        env={**environment, "TMPDIR": "/nowhere"},
    )  # fmt: skip
    assert ran.code in (0, 1), f"{ran.stdout}\n{ran.stderr}"
    assert_one_verdict(ran, ran.code)
    if ran.code == 1:
        finding = ran.finding("dataloader.completed")
        assert "no temporary directory is writable" in finding["cause"]
        assert finding["blame"] == "setup" and "TMPDIR" in finding["remedy"]
    gate.assert_nothing_left()
