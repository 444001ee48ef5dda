"""Frozen children, killed gates, two gates at once: each ends in time and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command.images import write_images
from tests.command.running import (
    FAIL_LIMITS,
    FAIL_SHM,
    SMALL_LOADER,
    Gate,
    Running,
    assert_one_verdict,
    kill,
    wait_until,
)
from tests.freezing import freezer

pytestmark = pytest.mark.timeout(120)
UNCOVERED = True

QUICK = ("run", "--thresholds=quick", "--set=limits.min_memory_headroom_gib=0")


@pytest.fixture
def measuring(clean_gate: Gate) -> Iterator[Running]:
    """A loader that would measure for minutes."""
    write_images(clean_gate.folder / "data", 32)
    running = clean_gate.start(
        "run", "--thresholds=cpu", "--check=dataloader", "--data=data", *SMALL_LOADER,
        "--set=loader.num_workers=2", "--set=stats.warmup_s=60", "--set=dataloader.timeout_s=5",
    )  # fmt: skip
    yield running.wait_for("warming up")


def group(leader: int) -> list[int]:
    """A process and everything in its group."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and os.path.exists(f"/proc/{name}"):
            try:
                if os.getpgid(int(name)) == leader:
                    found.append(int(name))
            except ProcessLookupError:
                continue
    return found


def test_a_frozen_child_does_not_hold_up_the_shm_check(clean_gate: Gate) -> None:
    with freezer() as freeze:
        running = clean_gate.start(*QUICK, "--set=shm.timeout_s=2", standin="hang:shm")
        clean_gate.mark()
        child = clean_gate.measuring()
        freeze([child])
        ran = running.end(patience_s=30)
        assert child in clean_gate.processes()  # it was frozen, and the gate went without it
    assert_one_verdict(ran, 3)
    finding = ran.finding("shm.completed")
    assert finding["outcome"] == "error" and f"process {child} cannot be killed" in finding["cause"]
    assert "standing in" in finding["cause"] and f"/proc/{child}/stack" in finding["remedy"]
    clean_gate.assert_nothing_left()


def test_a_frozen_loader_does_not_hold_up_the_gate(clean_gate: Gate, measuring: Running) -> None:
    with freezer() as freeze:
        child = clean_gate.measuring()
        freeze(group(child))
        ran = measuring.end(patience_s=60)
        assert child in clean_gate.processes()
    assert_one_verdict(ran, 3)
    finding = ran.finding("dataloader.completed")
    assert f"process {child} cannot be killed" in finding["cause"]
    assert ran.result("dataloader")["partial"]
    clean_gate.assert_nothing_left()


def test_a_killed_gate_leaves_no_process_no_file_and_no_pass(
    clean_gate: Gate, measuring: Running
) -> None:
    assert len(clean_gate.processes()) >= 4  # gate, delivery, loader, its workers
    ran = measuring.send(signal.SIGKILL).end()
    assert ran.code == -signal.SIGKILL
    clean_gate.assert_nothing_left()
    report = ran.report
    assert (report["complete"], report["exit_code"]) == (False, 3)
    assert ran.result("dataloader")["reason"] == "was running when the run was cut off"
    assert ran.junit.errors >= 1


@pytest.mark.parametrize("when", ["--stagger=20h", "--data=data"])
def test_a_gate_killed_before_it_measures_leaves_no_old_pass(gate: Gate, when: str) -> None:
    write_images(gate.folder / "data", 1)
    assert_one_verdict(gate.run(*QUICK, "--check=limits"), 0)
    running = gate.start(*QUICK, when, standin="hang:look")
    if when == "--data=data":
        gate.mark()
    else:
        running.wait_for("stagger: waiting")
    ran = running.send(signal.SIGKILL).end()
    assert (ran.report["complete"], ran.report["exit_code"]) == (False, 3)
    assert ran.junit.errors >= 1
    gate.assert_nothing_left()


def test_a_measuring_process_killed_from_outside_is_no_verdict(
    clean_gate: Gate, measuring: Running
) -> None:
    kill(clean_gate.measuring(), signal.SIGKILL)
    ran = measuring.end()
    assert_one_verdict(ran, 3)
    assert "killed from outside" in ran.finding("dataloader.completed")["cause"]
    clean_gate.assert_nothing_left()


def test_a_worker_killed_from_outside_is_no_verdict(clean_gate: Gate, measuring: Running) -> None:
    child = clean_gate.measuring()
    kill(max(pid for pid in group(child) if pid != child), signal.SIGKILL)
    ran = measuring.end()
    assert_one_verdict(ran, 3)
    assert ran.finding("dataloader.completed")["outcome"] == "error"
    clean_gate.assert_nothing_left()


@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_a_loader_that_came_to_its_verdict_leaves_nothing(clean_gate: Gate, verdict: str) -> None:
    write_images(clean_gate.folder / "data", 32)
    floor = "0.5" if verdict == "pass" else "1e9"
    ran = clean_gate.run(
        "run", "--thresholds=cpu", "--check=dataloader", "--data=data", *SMALL_LOADER,
        f"--set=dataloader.min_samples_per_s={floor}",
    )  # fmt: skip
    assert_one_verdict(ran, 0 if verdict == "pass" else 1)
    clean_gate.assert_nothing_left()


@pytest.mark.parametrize("later", [
    ("--no-such-option",), ("--thresholds=nowhere.yaml",), ("--thresholds=wrong.yaml",),
    ("--data=nowhere",), ("--check=nothing",), ("--deadline=soon",),
])  # fmt: skip
def test_an_old_pass_is_gone_after_wrong_usage(gate: Gate, later: tuple[str, ...]) -> None:
    (gate.folder / "wrong.yaml").write_text("limits: {min_memory_headroom_gib: lots}\n")
    gate.reports.mkdir()
    for name in ("preflight.json", "preflight.xml"):
        (gate.reports / name).write_text("an old pass")
    ran = gate.run(*QUICK, *later)
    assert_one_verdict(ran, 2)
    assert ran.report["outcome"] == "error" and ran.report["reason"]


def test_two_gates_in_one_folder_keep_their_codes_and_whole_files(gate: Gate) -> None:
    both = [
        (gate.start(*QUICK, "--set=shm.min_free_gib=0"), 0),
        (gate.start(*QUICK, FAIL_SHM), 1),
        (gate.start(*QUICK, FAIL_LIMITS, "--allow-undecided"), 1),
    ]
    codes = [(running.end(), code) for running, code in both]
    for ran, code in codes:
        assert ran.code == code, ran.stderr
    assert ran.report["complete"] and ran.report["exit_code"] in (0, 1)
    assert ran.junit.tests > 0
    assert sorted(os.listdir(gate.reports)) == ["preflight.json", "preflight.xml"]
    gate.assert_nothing_left()


def test_a_reader_never_sees_half_a_report(gate: Gate) -> None:
    running = gate.start(*QUICK, standin="hang:shm")
    gate.mark()
    running.send(signal.SIGTERM)
    seen = 0
    while running.process.poll() is None:
        for name in ("preflight.json", "preflight.xml"):
            text = Path(gate.reports, name).read_text()
            assert text.rstrip().endswith(("}", "</testsuites>"))
        json.loads(Path(gate.reports, "preflight.json").read_text())
        seen += 1
    assert seen and running.end().code == 143
    wait_until(gate.processes, lambda pids: not pids)


@pytest.mark.parametrize("end", ["closed pipe", "signal"])
def test_a_command_that_only_looks_leaves_the_reports_alone(gate: Gate, end: str) -> None:
    gate.run("--check=limits", "--thresholds=cpu")
    saved = (gate.reports / "preflight.json").read_text()
    env = {"PREFLIGHT_REPORT_DIR": str(gate.reports)}
    if end == "closed pipe":
        read, write = os.pipe()
        os.close(read)
        ran = gate.run("checks", env=env, reports=False, stdout=write)
        os.close(write)
        assert ran.code == 3
    else:
        running = gate.start("info", env=env, reports=False, standin="hang:import")
        gate.mark()
        running.send(signal.SIGTERM)
        assert running.end().code == 143
    assert (gate.reports / "preflight.json").read_text() == saved
