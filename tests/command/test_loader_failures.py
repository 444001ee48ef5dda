"""Failures of a loader told apart, each staged for real: outcome, blame, cause, what is kept."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.command.cgroups import limited
from tests.command.running import Gate, Ran, assert_one_verdict, can_mount, in_own_mounts

pytestmark = pytest.mark.timeout(60)
UNCOVERED = True
needs_mounts = pytest.mark.skipif(not can_mount(), reason="mounting needs root (unshare -m)")

LOADER = (
    "run", "--thresholds=cpu", "--check=dataloader", "--skip=shm", "--set=loader.num_workers=2",
    "--set=loader.batch_size=4", "--set=dataloader.min_samples_per_s=0.5",
    "--set=limits.min_memory_headroom_gib=0", "--set=stats.warmup_s=0.1",
    "--set=stats.block_s=0.1", "--set=loader.timeout_s=2", "--set=stats.no_batch_s=1.5",
    "--set=dataloader.timeout_s=20",
)  # fmt: skip
SMALL_SHM = in_own_mounts("mount -t tmpfs -o size=16m tmpfs /dev/shm")


def run(gate: Gate, factory: str, *arguments: str, wrapped: tuple[str, ...] = ()) -> Ran:
    shutil.copy(Path(__file__).with_name("failing_job.py"), gate.folder / "job.py")
    ran = gate.run(*LOADER, f"--dataset=job:{factory}", *arguments, wrapped=wrapped)
    gate.assert_nothing_left()
    return ran


def told(ran: Ran, outcome: str, blame: str, *, name: str = "completed") -> dict[str, Any]:
    """The finding that decides, seen in every format; what broke leaves its reading and lines."""
    assert_one_verdict(ran, {"fail": 1, "error": 3}[outcome])
    finding = ran.finding(f"dataloader.{name}")
    assert (finding["outcome"], finding["blame"]) == (outcome, blame), finding
    assert finding["remedy"] and len(finding["cause"]) < 500
    (suite,) = ran.junit
    (case,) = [case for case in suite if case.name.startswith(name)]
    assert finding["cause"] in case.result[0].text and finding["cause"][:40] in ran.stdout
    assert len(ran.stdout.splitlines()[0]) < 600
    return finding


def lines_kept(ran: Ran, *words: str) -> None:
    """Of standard error, in the report and in JUnit."""
    output = ran.result("dataloader")["output"]
    assert 0 < len(output.splitlines()) <= 20
    assert all(word in output for word in words), output
    assert "last lines printed:" in (ran.reports / "preflight.xml").read_text()


def partial(ran: Ran, **fields: Any) -> None:
    result = ran.result("dataloader")
    assert result["partial"] is True
    assert {name: result["reading"][name] for name in fields} == fields


@needs_mounts
@pytest.mark.parametrize("factory", ["big", "big_list", "big_alone"])
def test_a_small_shm_however_the_batches_are_made(gate: Gate, factory: str) -> None:
    ran = run(gate, factory, wrapped=SMALL_SHM)
    finding = told(ran, "fail", "setup")
    assert "/dev/shm ran full" in finding["cause"] and "it has 16 MiB" in finding["cause"]
    # 8 samples of 3 MB, 2 x 2 + 2 batches.
    assert "need 137 MiB" in finding["cause"] and "--shm-size=1g" in finding["remedy"]
    lines_kept(ran, "No space left on device (28)")
    partial(ran, no_batch=False, num_workers=2)


def test_too_few_open_files(gate: Gate) -> None:
    ran = run(gate, "many_tensors", wrapped=("sh", "-c", 'ulimit -n 100 && exec "$@"', "sh"))
    finding = told(ran, "fail", "setup")
    assert "the limit on open files (100) was reached" in finding["cause"]
    assert "ulimit -n" in finding["remedy"]
    lines_kept(ran, "Too many open files")
    partial(ran, no_batch=False)


def test_too_few_processes(gate: Gate) -> None:
    limit = {"pids.max": "40"}
    with limited("pids", limit, limit) as wrapped:
        ran = run(gate, "Threads", wrapped=wrapped)
    finding = told(ran, "fail", "setup")
    assert "no further process or thread could be started" in finding["cause"]
    assert "--pids-limit" in finding["remedy"]
    lines_kept(ran, "start new thread")
    partial(ran, num_workers=2)


@pytest.mark.parametrize("factory", ["Eats", "eats"])
def test_a_kill_at_the_memory_limit_of_a_worker_and_of_the_measuring_process(
    gate: Gate, factory: str
) -> None:
    limit = str(1200 << 20)
    v1, v2 = {"memory.limit_in_bytes": limit}, {"memory.max": limit, "memory.swap.max": "0"}
    with limited("memory", v1, v2) as wrapped:
        ran = run(gate, factory, "--set=dataloader.max_memory_share=1", wrapped=wrapped)
    finding = told(ran, "fail", "setup")
    assert "the kernel killed a process of the loader at the container's" in finding["cause"]
    assert "docker run --memory" in finding["remedy"]
    if factory == "Eats":
        partial(ran, num_workers=2)


def test_samples_that_raise_more_often_than_is_allowed(gate: Gate) -> None:
    ran = run(gate, "Corrupt")
    finding = told(ran, "fail", "data", name="corrupt_samples")
    assert finding["limit"] == 1.0 and finding["observed"] > 3
    assert "samples of job:Corrupt raised, among them sample" in finding["cause"]
    assert "OSError: image file is truncated (" in finding["cause"]
    assert "job.py, line " in finding["cause"]
    assert ran.finding("dataloader.supply")["outcome"] == "pass"


def test_few_samples_that_raise_are_a_warning(gate: Gate) -> None:
    ran = run(gate, "Corrupt", "--set=dataloader.max_corrupt_percent=60")
    assert_one_verdict(ran, 0)
    finding = ran.finding("dataloader.corrupt_samples")
    assert (finding["outcome"], finding["blame"]) == ("warn", "data")


@pytest.mark.parametrize(
    ("factory", "cause", "remedy", "line"),
    [
        ("Ragged", "gives samples that do not fit into one batch", "pad or crop", "collate"),
        ("Cuda", "uses CUDA in a worker that was forked", "to spawn", "Cannot re-initialize"),
        ("lambdas", "a worker could not send a batch (", "no lambda", "lambda"),
        ("Leaves", "exited unexpectedly with exit code 7", "os._exit", ""),
    ],
)
def test_faults_of_the_jobs_own_code(
    gate: Gate, factory: str, cause: str, remedy: str, line: str
) -> None:
    ran = run(gate, factory)
    finding = told(ran, "error", "setup")
    assert cause in finding["cause"] and remedy in finding["remedy"]
    if line:
        lines_kept(ran, line)
    partial(ran, num_workers=1 if factory == "lambdas" else 2)


def test_a_data_set_that_cannot_be_sent_to_spawned_workers(gate: Gate) -> None:
    ran = run(gate, "Locked", "--set=loader.multiprocessing_context=spawn")
    finding = told(ran, "error", "setup")
    assert "cannot be sent to workers that are started by spawn" in finding["cause"]
    assert "locks" in finding["remedy"]


SILENT = [
    ("Hangs", "2 of 2 workers stand at ", "(threading.Event().wait()), in __getitem__"),
    ("HangsInC", "2 of 2 workers stand at ", "job.py, line "),
    ("hangs_in_collate", "the worker stands at ", "in <lambda>"),
    ("without_workers", "the loader's process stands at ", "in __getitem__"),
]


@pytest.mark.parametrize(("factory", "who", "where"), SILENT)
def test_a_loader_that_never_gives_a_batch(gate: Gate, factory: str, who: str, where: str) -> None:
    ran = run(gate, factory)
    # Beside neighbours who take its CPUs it is not told from a slow one, and torch's limit ends it.
    silent = ran.result("dataloader")["reading"]["no_batch"]
    finding = (
        told(ran, "fail", "unknown", name="no_batch") if silent else told(ran, "error", "unknown")
    )
    assert "gave no batch" in finding["cause"] and who in finding["cause"]
    assert f"{gate.folder}/job.py, line " in finding["cause"] and where in finding["cause"]
    assert "see what that line waits for" in finding["remedy"]
    partial(ran, no_batch=silent, first_batch_s=None)
    if factory != "without_workers":
        lines_kept(ran, "stands here:", "job.py")


def test_a_loader_that_falls_silent(gate: Gate) -> None:
    ran = run(gate, "HangsLater", "--set=dataloader.min_samples_per_s=1e6",
              "--set=stats.hopeless_ratio=0")  # fmt: skip
    finding = told(ran, "error", "unknown")
    assert "the loader gave no batch for 2 s: " in finding["cause"]
    assert "(time.sleep(999)), in __getitem__" in finding["cause"]
    lines_kept(ran, "stands here:", "job.py")
    assert ran.result("dataloader")["reading"]["first_batch_s"] > 0
    partial(ran, no_batch=False)


def test_a_lock_that_a_thread_held_when_the_workers_were_forked(gate: Gate) -> None:
    ran = run(gate, "deadlock", "--set=loader.multiprocessing_context=fork")
    name = "no_batch" if ran.result("dataloader")["reading"]["no_batch"] else "completed"
    finding = told(ran, "error" if name == "completed" else "fail", "unknown", name=name)
    assert "(with LOCK:), in __getitem__" in finding["cause"]
    assert "a thread was running (holder)" in finding["cause"]
    assert "to spawn" in finding["remedy"]


@pytest.mark.parametrize("factory", ["Crashes", "crashes"])
def test_a_crash_in_native_code_names_the_line(gate: Gate, factory: str) -> None:
    ran = run(gate, factory)
    finding = told(ran, "error", "unknown")
    assert "crashed in native code at " in finding["cause"]
    assert "job.py, line " in finding["cause"] and "ctypes.string_at(0)" in finding["cause"]
    assert "faulthandler" in finding["remedy"]


def test_a_factory_that_never_returns_is_told_by_its_line_at_any_end(gate: Gate) -> None:
    shutil.copy(Path(__file__).with_name("failing_job.py"), gate.folder / "job.py")
    running = gate.start(*LOADER, "--dataset=job:never")
    gate.mark()
    ran = running.send(signal.SIGTERM).end()
    assert_one_verdict(ran, 143)
    cause = ran.finding("dataloader.completed")["cause"]
    assert "stopped by SIGTERM (last: calling job:never, at " in cause
    assert "(time.sleep(999)), in never" in cause
    gate.assert_nothing_left()


@needs_mounts
def test_no_temporary_folder(gate: Gate) -> None:
    gate.reports.mkdir()
    places = ["/tmp", "/var/tmp", "/"]
    steps = [f"mount --bind {place} {place}" for place in (gate.reports, *places[:2])]
    steps += [f"mount --bind {gate.reports} {gate.reports}"]
    steps += [f"mount -o remount,bind,ro {place}" for place in places]
    shutil.copy(Path(__file__).with_name("failing_job.py"), gate.folder / "job.py")
    ran = gate.run(
        *LOADER, "--dataset=job:Images", wrapped=in_own_mounts(" && ".join(steps)), cwd="/",
        env={"TMPDIR": "/nowhere", "PYTHONPATH": str(gate.folder)},
    )  # fmt: skip
    finding = told(ran, "fail", "setup")
    assert "no temporary directory is writable" in finding["cause"]
    assert "TMPDIR" in finding["remedy"]
    gate.assert_nothing_left()
