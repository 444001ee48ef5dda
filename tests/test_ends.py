"""How a unit ended, and what is said about it: every row of the table, and every other end."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

from preflight.diagnosis.ends import Circumstances, finding
from preflight.diagnosis.loader_failures import FAILURES, explain
from preflight.ended import Ended
from preflight.outcome import Blame, Outcome

AROUND = Circumstances(
    check="dataloader", subject="rank 0", timeout_s=60.0, gpu=False, cpus=8.0, stopped_by=None,
    oom_kills=0, more_memory_gib=16, shm_size_gib=0.0625, shm_need_gib=1.5, nofile=1024,
)  # fmt: skip


def explained(ended: Ended, id: str = "completed", **around: Any) -> Any:
    made = Circumstances(**{**vars(AROUND), **around})
    found = finding(ended, made)
    assert found.id == f"dataloader.{id}"
    assert found.cause and found.remedy and found.blame
    assert "{" not in found.remedy
    return found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "RuntimeError: unable to allocate shared memory(shm) for file </torch_8_1_0>: "
            "No space left on device (28)",
            "shm_full",
        ),
        ("DataLoader worker (pid 8) is killed by signal: Bus error.", "shm_full"),
        ("FileNotFoundError: No usable temporary directory found in", "no_temporary_directory"),
        ("RuntimeError: received 0 items of ancdata", "open_files"),
        ("OSError: [Errno 24] Too many open files", "open_files"),
        ("RuntimeError: can't start new thread", "too_many_processes"),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "too_many_processes"),
        ("OSError: [Errno 12] Cannot allocate memory", "address_space"),
        ("self._semlock = _multiprocessing.SemLock._rebuild(*state)", "semaphores_removed"),
        ("ModuleNotFoundError: No module named 'torch'", "torch_missing"),
        ("RuntimeError: Pin memory thread exited unexpectedly", "pin_thread"),
        ("RuntimeError: DataLoader timed out after 20 seconds", "loader_timed_out"),
        ("DataLoader worker (pid 9) is killed by signal: Killed.", "killed"),
        ("DataLoader worker (pid 9) is killed by signal: Segmentation fault.", "crashed"),
    ],
)
def test_texts_that_were_seen(text: str, name: str) -> None:
    for ended in (Ended("raised", 1.0, text=text), Ended("timeout", 1.0, output=f"x\n{text}\n")):
        row = explain(ended.text, ended.output, None, 0)
        assert row is not None and row.name == name
        assert explained(ended).outcome is row.outcome


ENOSPC = (
    "RuntimeError: unable to allocate shared memory(shm) for file </torch_8>: No space left on "
    "device (28)"
)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: DataLoader timed out after 20 seconds",
        "LoaderSilent: the loader gave no batch for 20 s",
        "NoBatch: 2 living workers gave no batch of 4 in 20 s",
        "WorkerEnded: DataLoader worker (pid 9) exited unexpectedly with exit code 1",
    ],
)
def test_what_only_says_that_it_ended_is_explained_by_what_was_printed(text: str) -> None:
    row = explain(text, f"Traceback\n{ENOSPC}\n", None, 0)
    assert row is not None and row.name == "shm_full"
    alone = explain(text, "", None, 0)
    assert alone is not None and alone.vague


@pytest.mark.parametrize(
    ("need", "said", "size"),
    [(1.5, "it has 64 MiB, the batches in flight need 1.5 GiB", "=2g"),
     (None, "it has 64 MiB, and the batches in flight need more", "=1g")],
)  # fmt: skip
def test_a_full_shm_is_told_with_what_it_has_and_what_it_needs(
    need: float | None, said: str, size: str
) -> None:
    found = explained(Ended("raised", 1.0, text=ENOSPC), shm_need_gib=need)
    assert said in found.cause and f"--shm-size{size}" in found.remedy


def test_the_childs_own_words_for_a_silent_loader() -> None:
    text = "NoBatch: 2 living workers gave no batch in 20 s: they stand {here}\nsee to it"
    found = explained(Ended("raised", 1.0, text=text), "no_batch")
    assert found.outcome is Outcome.FAIL
    assert found.cause == "2 living workers gave no batch in 20 s: they stand {here}"
    assert found.remedy == "see to it"
    bare = explained(Ended("raised", 1.0, text="LoaderSilent: the loader gave no batch for 5 s"))
    assert bare.cause == "the loader gave no batch for 5 s" and "dmesg" in bare.remedy
    assert bare.outcome is Outcome.ERROR


def test_a_samples_own_words_come_through_the_workers_traceback() -> None:
    text = (
        "CorruptData: Caught CorruptData in DataLoader worker process 0.\nOriginal Traceback (most "
        "recent call last):\n  ...\npreflight.measure.dataset.CorruptData: 16 samples in a row\n"
    )
    found = explained(Ended("raised", 1.0, text=text))
    assert (found.cause, found.blame) == ("16 samples in a row", Blame.DATA)
    assert "by hand" in found.remedy


AT = "job.py, line 17 (time.sleep(9)), in make"


@pytest.mark.parametrize(
    "ended",
    [
        Ended("timeout", 60.0, ready=False, went=False, last_progress="calling job:make"),
        Ended("timeout", 9.0, ready=False, went=False, by_total=True),
        Ended("timeout", 61.0, last_progress="measuring"),
        Ended("stopped", 1.0),
        Ended("died", 1.0, exit_signal=signal.SIGSEGV),
    ],
)
def test_the_line_of_the_jobs_code_that_it_ended_at_is_named(ended: Ended) -> None:
    assert AT in explained(ended, stood_at=AT, stopped_by="SIGTERM").cause
    assert AT not in explained(ended, stopped_by="SIGTERM").cause


def test_every_row_is_reached_by_a_text_or_a_signal() -> None:
    assert {row.name for row in FAILURES if not row.patterns and row.signal is None} == set()


@pytest.mark.parametrize("how", ["worker", "child"])
def test_a_kill_is_the_memory_limit_only_with_the_cgroups_word_for_it(how: str) -> None:
    ended = (
        Ended("raised", 1.0, text="DataLoader worker (pid 9) is killed by signal: Killed.")
        if how == "worker"
        else Ended("died", 1.0, exit_signal=signal.SIGKILL)
    )
    with_oom = explained(ended, oom_kills=1)
    assert (with_oom.outcome, with_oom.blame) == (Outcome.FAIL, Blame.SETUP)
    assert "16 GiB" in with_oom.remedy
    for kills in (0, None):
        without = explained(ended, oom_kills=kills)
        assert (without.outcome, without.blame) == (Outcome.ERROR, Blame.UNKNOWN)


def test_a_bus_error_of_the_child_itself_is_shared_memory() -> None:
    found = explained(Ended("died", 1.0, exit_signal=signal.SIGBUS))
    assert (found.outcome, found.blame) == (Outcome.FAIL, Blame.SETUP)
    assert "--shm-size=2g" in found.remedy


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Ended("stopped", 1.0, last_progress="measuring"), "stopped by SIGTERM (last: measuring)"),
        (Ended("timeout", 60.0, ready=False, went=False), "not ready to measure after 60 s"),
        (Ended("timeout", 61.0, last_progress="measuring"), "no answer in 60 s (last: measuring)"),
        (Ended("timeout", 9.0, by_total=True), "deadline came after 9 s of this check"),
        (
            Ended("timeout", 9.0, went=False, by_total=True),
            "deadline came after 9 s of waiting for its turn",
        ),
        (Ended("timeout", 63.0, abandoned_pid=77), "process 77 cannot be killed"),
        (Ended("raised", 1.0, text="KeyError: 'x'\nmore"), "ended early: KeyError: 'x'"),
        (Ended("died", 1.0, exit_signal=6), "it died of signal 6"),
        (Ended("died", 1.0), "it died"),
    ],
)
def test_other_ends_are_errors_that_blame_no_node(ended: Ended, said: str) -> None:
    found = explained(ended, stopped_by="SIGTERM")
    assert found.outcome is Outcome.ERROR
    assert found.blame is not Blame.NODE
    assert said in found.cause


HUNG = Ended("timeout", 20.3, last_progress="starting CUDA (cuInit)")


@pytest.mark.parametrize("abandoned", [None, 77])
def test_a_gpu_that_does_not_answer_fails_and_blames_the_node(abandoned: int | None) -> None:
    ended = replace(HUNG, abandoned_pid=abandoned)
    found = explained(ended, gpu=True, subject="GPU 3", timeout_s=20.0)
    assert (found.outcome, found.blame, found.subject) == (Outcome.FAIL, Blame.NODE, "GPU 3")
    assert "starting CUDA (cuInit) on GPU 3 did not return in 20 s" in found.cause
    assert ("process 77 cannot be killed" in found.cause) == (abandoned is not None)
    assert "dmesg" in found.remedy


def test_a_slow_start_with_a_part_of_a_cpu_is_no_hang() -> None:
    found = explained(HUNG, gpu=True, subject="GPU 3", cpus=0.5)
    assert (found.outcome, found.blame) == (Outcome.ERROR, Blame.UNKNOWN)


@pytest.mark.parametrize(
    "ended",
    [
        replace(HUNG, ready=False, went=False),  # torch's import: its own limit, never the node
        replace(HUNG, went=False, by_total=True),
        replace(HUNG, by_total=True),
        Ended("stopped", 1.0),
        Ended("died", 1.0, exit_signal=signal.SIGTERM),
        Ended("raised", 1.0, text="RuntimeError: x"),
    ],
)
def test_other_ends_of_a_gpu_check_are_errors(ended: Ended) -> None:
    found = explained(ended, gpu=True, subject="GPU 3")
    assert (found.outcome, found.blame is Blame.NODE) == (Outcome.ERROR, False)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_crash_of_a_gpu_check_is_told_as_the_drivers(number: signal.Signals) -> None:
    ended = Ended("died", 1.0, exit_signal=number, last_progress="starting CUDA (cuInit)")
    found = explained(ended, gpu=True, subject="GPU 3")
    assert (found.outcome, found.blame) == (Outcome.ERROR, Blame.UNKNOWN)
    assert "starting CUDA (cuInit) on GPU 3 crashed the process" in found.cause
    assert "loader" not in found.remedy
