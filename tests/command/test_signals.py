"""SIGTERM, SIGINT and SIGHUP in every phase: 143 or 130, whole reports, nothing left anywhere."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.command.hanging import storage
from tests.command.images import write_images
from tests.command.running import (
    PASS_HERE,
    SMALL_LOADER,
    Gate,
    Ran,
    Running,
    assert_one_verdict,
    wait_until,
)

pytestmark = pytest.mark.timeout(120)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
QUICK = ("run", "--thresholds=quick", "--set=limits.min_memory_headroom_gib=0")
every_signal = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)


def assert_stopped(gate: Gate, ran: Ran, number: signal.Signals) -> None:
    assert_one_verdict(ran, 130 if number is signal.SIGINT else 143)
    assert number.name in ran.report["reason"]
    assert "Traceback" not in ran.stderr
    gate.assert_nothing_left()


def old_pass(gate: Gate) -> None:
    assert_one_verdict(gate.run(*QUICK, "--check=limits"), 0)


def guarded(running: Running) -> bool:
    """Whether the guard's handlers are there; SIGHUP's comes last."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    found = re.search(r"SigCgt:\s*([0-9a-f]+)", status)
    return found is not None and bool(int(found[1], 16) >> (signal.SIGHUP - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_at_any_moment_of_the_start(gate: Gate, number: signal.Signals) -> None:
    for after_ms in (0, 15, 30, 60, 90, 130, 200, 300):
        running = gate.start(*QUICK)
        time.sleep(after_ms / 1000)
        was_guarded = guarded(running)
        code = running.send(number).end().code
        assert code == 143 or (code == -number and not was_guarded), after_ms
    gate.assert_nothing_left()


@every_signal
def test_while_the_command_is_imported(gate: Gate, number: signal.Signals) -> None:
    old_pass(gate)
    running = gate.start(*QUICK, standin="hang:import")
    gate.mark()
    ran = running.send(number).end()
    assert_one_verdict(ran, 130 if number is signal.SIGINT else 143)
    assert "Traceback" not in ran.stderr
    gate.assert_nothing_left()


@every_signal
def test_during_the_stagger(gate: Gate, number: signal.Signals) -> None:
    old_pass(gate)
    running = gate.start(*QUICK, "--stagger=20h").wait_for("stagger: waiting")
    assert_stopped(gate, running.send(number).end(), number)


@every_signal
def test_while_the_data_path_is_looked_at(clean_gate: Gate, number: signal.Signals) -> None:
    write_images(clean_gate.folder / "data", 2)
    old_pass(clean_gate)
    running = clean_gate.start(*QUICK, "--data=data", standin="hang:look")
    clean_gate.mark()
    assert_stopped(clean_gate, running.send(number).end(), number)


@every_signal
def test_during_a_check(clean_gate: Gate, number: signal.Signals) -> None:
    running = clean_gate.start(*QUICK, standin="hang:shm")
    clean_gate.mark()
    ran = running.send(number).end()
    assert_stopped(clean_gate, ran, number)
    assert ran.result("limits")["outcome"] == PASS_HERE
    assert ran.result("shm")["outcome"] == "error"


@every_signal
@pytest.mark.parametrize("doing", ["importing torch", "measuring"])
def test_while_the_loader_is_measured(clean_gate: Gate, number: signal.Signals, doing: str) -> None:
    write_images(clean_gate.folder / "data", 32)
    running = clean_gate.start(
        "run", "--thresholds=cpu", "--check=dataloader", "--data=data", *SMALL_LOADER,
        "--set=loader.num_workers=2", "--set=stats.warmup_s=60",
    )  # fmt: skip
    running.wait_for("importing torch" if doing == "importing torch" else "warming up")
    ran = running.send(number).end()
    assert_stopped(clean_gate, ran, number)
    finding = ran.finding("dataloader.completed")
    assert f"stopped by {number.name}" in finding["cause"]
    assert ran.result("dataloader")["partial"] == (doing == "measuring")


@every_signal
def test_while_the_report_is_delivered(clean_gate: Gate, number: signal.Signals) -> None:
    with storage(clean_gate.folder) as slow:
        slow.delay(create=0.25)
        running = clean_gate.start(*QUICK, f"--report-dir={slow.folder}", reports=False)
        wait_until(lambda: (slow.source / "preflight.json").exists(), bool)
        ran = running.send(number).end()
        slow.heal()
        ran = Ran(ran.code, ran.stdout, ran.stderr, slow.source)
        assert_stopped(clean_gate, ran, number)


def test_a_hail_of_signals_ends_as_one(clean_gate: Gate) -> None:
    running = clean_gate.start(*QUICK, standin="hang:shm")
    clean_gate.mark()
    for number in SIGNALS * 5:  # which of those that wait the kernel hands out first is its choice
        running.send(number)
    ran = running.end()
    first = signal.Signals[ran.report["reason"].removeprefix("stopped by ")]
    assert_stopped(clean_gate, ran, first)


def test_a_whole_foreground_group_gets_the_interrupt(clean_gate: Gate) -> None:
    """What a terminal's Ctrl-C does."""
    running = clean_gate.start(*QUICK, standin="hang:shm")
    clean_gate.mark()
    os.killpg(running.process.pid, signal.SIGINT)
    assert_stopped(clean_gate, running.end(), signal.SIGINT)


def test_nohup_is_respected(gate: Gate) -> None:
    running = gate.start(*QUICK, wrapped=("nohup",), standin="hang:shm")
    gate.mark()
    running.send(signal.SIGHUP)
    (gate.folder / "mark.go").touch()
    assert_one_verdict(running.end(), 0)
