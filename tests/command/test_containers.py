"""What a container is given: a small /dev/shm, a CPU quota, no temporary directory. Real ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from preflight.machine.cgroup import read_cgroups
from preflight.machine.cpu import lowest_quota
from preflight.machine.root import host
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
    said = re.search(r"(\d+) CPUs \(20,000 / ([\d.,]+) x 1 = ([\d.]+)", finding["remedy"])
    assert said is not None, finding["remedy"]
    cpus, supply, exact = int(said[1]), float(said[2].replace(",", "")), float(said[3])
    assert (
        exact == pytest.approx(20_000 / supply, rel=0.01) and cpus - 1 < exact + 0.05 <= cpus + 0.1
    )
    assert supply == pytest.approx(finding["observed"])


IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
LOADER = (
    "--set=loader.num_workers=1", "--set=shm.min_free_gib=0",
    "--set=dataloader.min_samples_per_s=0.5", "--set=limits.min_memory_headroom_gib=0",
    "--set=loader.timeout_s=5", "--set=stats.no_batch_s=5",
)  # fmt: skip


def read_only_root(gate: Gate, *writable: str) -> tuple[str, ...]:
    """All of the root file system read-only, but for the report folder and what is named."""
    gate.covered = False  # there is nowhere to write what was covered
    gate.reports.mkdir()
    steps = [f"mount --bind {folder} {folder}" for folder in (gate.reports, "/var/tmp", "/tmp")]
    # Reports lie in /tmp, too: mounted once more over it, they stay writable.
    steps.append(f"mount --bind {gate.reports} {gate.reports}")
    read_only = [folder for folder in ("/tmp", "/var/tmp", "/") if folder not in writable]
    steps += [f"mount -o remount,bind,ro {folder}" for folder in read_only]
    return in_own_mounts(" && ".join(steps))


@needs_mounts
@pytest.mark.parametrize("thresholds", ["cpu", "quick"])
def test_without_a_temporary_folder_no_loader_is_started(gate: Gate, thresholds: str) -> None:
    ran = gate.run(
        "run", f"--thresholds={thresholds}", *LOADER, wrapped=read_only_root(gate), cwd="/",
        env={"TMPDIR": "/nowhere"},
    )  # fmt: skip
    assert_one_verdict(ran, 1)
    finding = ran.finding("shm.temporary_folder")
    assert (finding["outcome"], finding["blame"]) == ("fail", "setup")
    assert "waits for ever" in finding["cause"]
    for way in ("docker run --tmpfs /tmp", "tmpfs: /tmp", "emptyDir at /tmp", "TMPDIR"):
        assert way in finding["remedy"]
    assert "no temporary folder is writable" in ran.stdout.splitlines()[0]
    if thresholds == "cpu":
        (skipped,) = ran.result("dataloader")["findings"]
        assert skipped["outcome"] == "skip" and "shm" in skipped["cause"]
    gate.assert_nothing_left()


@needs_mounts
def test_a_tmpfs_at_tmp_is_all_that_a_read_only_root_needs(gate: Gate) -> None:
    ran = gate.run(
        "run", "--thresholds=cpu", *LOADER, wrapped=read_only_root(gate, "/tmp"), cwd="/",
        env={"TMPDIR": None},
    )  # fmt: skip
    assert_one_verdict(ran, 0)
    assert ran.finding("shm.temporary_folder")["observed"] == "/tmp"
    gate.assert_nothing_left()


@needs_mounts
@pytest.mark.parametrize("data", ["generated", "own"])
def test_a_loader_that_is_started_all_the_same_does_not_wait_for_ever(
    gate: Gate, data: str
) -> None:
    write_images(gate.folder / "data", 32)
    ran = gate.run(
        "run", "--thresholds=cpu", "--skip=shm", *LOADER,
        *(["--data", str(gate.folder / "data")] if data == "own" else []),
        wrapped=read_only_root(gate), cwd="/", env={"TMPDIR": "/nowhere"},
    )  # fmt: skip
    assert_one_verdict(ran, 1)
    finding = ran.finding("dataloader.completed")
    assert "no temporary directory is writable" in finding["cause"]
    assert finding["blame"] == "setup" and "TMPDIR" in finding["remedy"]
    gate.assert_nothing_left()


def no_quota_here() -> bool:
    return lowest_quota(host(), read_cgroups(host())) is None


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU is all that there is")
@pytest.mark.skipif(not no_quota_here(), reason="this machine has a CPU quota")
def test_a_request_without_a_quota_is_what_the_loader_runs_on(gate: Gate) -> None:
    running = gate.start(
        "run", "--thresholds=cpu", *LOADER, "--set=loader.num_workers=2",
        "--set=dataloader.min_samples_per_s=1e9", "--set=stats.hopeless_ratio=0",
        "--set=stats.max_s=4", env={"PREFLIGHT_CPU_REQUEST": "1000m"},
    )  # fmt: skip
    running.wait_for("measuring")
    group = [pid for pid in gate.processes() if os.getpgid(pid) == gate.measuring()]
    allowed = {frozenset(os.sched_getaffinity(pid)) for pid in group}
    assert len(group) >= 3  # the loader's process and two workers
    assert len(allowed) == 1 and len(allowed.pop()) == 1
    ran = running.end()
    assert ran.code in (1, 3)  # undecided where neighbours are on that very CPU
    assert_one_verdict(ran, ran.code)
    cpu = ran.report["facts"]["cpu"]
    assert (cpu["request"], cpu["bound_to"], cpu["effective"]) == (1.0, 1, 1.0)
    assert ran.finding("limits.workers_per_cpu")["outcome"] == "warn"
    assert "PREFLIGHT_CPU_REQUEST" in ran.finding("limits.workers_per_cpu")["cause"]
    reading = ran.result("dataloader")["reading"]
    assert (reading["requested_cpus"], reading["bound_cpus"]) == (1, 1)
    assert reading["effective_cpus"] == 1.0 and 0 < reading["own_cpu_share"] < 1.3
    assert ran.finding("dataloader.cpu_request")["outcome"] == "pass"
    gate.assert_nothing_left()


QUICK = ("run", "--thresholds=quick", "--check=limits", "--set=limits.min_memory_headroom_gib=0")


@needs_mounts
@pytest.mark.parametrize(("options", "outcome"), [("rw", "warn"), ("ro", "pass")])
def test_data_that_may_be_written_to(gate: Gate, options: str, outcome: str) -> None:
    data = gate.folder / "volume"
    write_images(data / "train", 1)
    mounting = f"mount --bind {data} {data} && mount -o remount,bind,{options} {data}"
    (gate.folder / "link").symlink_to(data / "train")
    ran = gate.run(*QUICK, "--data=link", wrapped=in_own_mounts(mounting), env=IN_A_POD)
    assert_one_verdict(ran, 0)
    finding = ran.finding("limits.data_mount")
    assert (finding["outcome"], finding["subject"]) == (outcome, "link")
    if outcome == "warn":
        assert f"mounted at {data}" in finding["cause"] and "readOnly" in finding["remedy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run as root")
def test_root_in_a_container_is_a_warning(gate: Gate) -> None:
    ran = gate.run(*QUICK, env=IN_A_POD)
    assert_one_verdict(ran, 0)
    finding = ran.finding("limits.user")
    assert (finding["outcome"], finding["blame"]) == ("warn", "setup")
    assert "a kubernetes container" in finding["cause"] and "runAsNonRoot" in finding["remedy"]


@needs_mounts
def test_another_user_in_a_container_is_not_warned_of(gate: Gate) -> None:
    ran = gate.run(*QUICK, env=IN_A_POD, wrapped=("unshare", "--user", "--map-user=1000"))
    assert_one_verdict(ran, 0)
    assert ran.finding("limits.user")["outcome"] == "pass"
