"""`preflight.run` in real programs: however they were started, whatever they did before."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.command.running import Gate, Ran, read_json, wait_until

pytestmark = pytest.mark.timeout(120)

QUICK = 'thresholds="cpu", check="shm", set={"shm.min_free_gib": 0}'
ASK = f"""
import sys
import preflight
report = preflight.run({QUICK})
heavy = {{"torch", "numpy", "pynvml", "PIL", "typer"}} & set(sys.modules)
print(report.passed, report.results[0].outcome, heavy)
"""
PASSED = "True pass set()\n"


def script(gate: Gate, text: str) -> tuple[str, str]:
    path = gate.folder / "train.py"
    path.write_text(text)
    return sys.executable, str(path)


def assert_passed(gate: Gate, ran: Ran) -> None:
    assert (ran.code, ran.stdout, ran.stderr) == (0, PASSED, "")
    gate.assert_nothing_left()


def test_a_script_without_a_main_guard_measures_its_loader_once(clean_gate: Gate) -> None:
    gate = clean_gate
    text = """
import sys
print("once", flush=True)
import preflight
report = preflight.run(
    thresholds="cpu",
    set={
        "loader.num_workers": 1, "loader.batch_size": 4, "sample.shape": [3, 32, 32],
        "loader.multiprocessing_context": "spawn",
        "dataloader.min_samples_per_s": 0.5, "limits.min_memory_headroom_gib": 0,
        "shm.min_free_gib": 0,
    },
    report_dir=sys.argv[1],
)
print(report.passed, "torch" in sys.modules)
"""
    ran = gate.run(str(gate.reports), command=script(gate, text), reports=False)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "once\nTrue False\n", "")
    assert ran.finding("dataloader.supply")["outcome"] == "pass"
    gate.assert_nothing_left()


BEFORE = {
    "nothing": "",
    "SIGCHLD ignored": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "children reaped by others": (
        "import os, signal\n"
        "def reap(number, frame):\n"
        "    try:\n"
        "        while os.waitpid(-1, os.WNOHANG)[0]: pass\n"
        "    except ChildProcessError: pass\n"
        "signal.signal(signal.SIGCHLD, reap)"
    ),
    "signals blocked": (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"
    ),
    "standard input closed": "import os, sys; os.close(0); sys.stdin = None",
    "folder deleted": "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "a thread that keeps the interpreter busy": (
        "import threading\n"
        "def spin():\n"
        "    while True: pass\n"
        "threading.Thread(target=spin, daemon=True).start()"
    ),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_whatever_the_program_did_before(gate: Gate, before: str) -> None:
    ran = gate.run(command=(sys.executable, "-c", f"{before}\n{ASK}"), reports=False)
    assert_passed(gate, ran)


def test_a_program_read_from_standard_input(gate: Gate) -> None:
    source = gate.folder / "source"
    source.write_text(ASK)
    with source.open() as stdin:
        ran = gate.run(command=(sys.executable, "-"), reports=False, stdin=stdin)
    assert_passed(gate, ran)


def test_threads_and_event_loops(gate: Gate) -> None:
    text = f"""
import asyncio, sys, threading
import preflight
codes = []
def ask():
    codes.append(preflight.run({QUICK}).exit_code)
thread = threading.Thread(target=ask)
thread.start()
thread.join()
asyncio.run(asyncio.to_thread(ask))
print(codes == [0, 0], "pass", set())
"""
    assert_passed(gate, gate.run(command=script(gate, text), reports=False))


def test_ctrl_c_ends_the_measuring_writes_the_reports_and_goes_on(clean_gate: Gate) -> None:
    gate = clean_gate
    text = f"""
import sys
import preflight
try:
    preflight.run({QUICK}, report_dir=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
print("went on")
"""
    running = gate.start(
        str(gate.reports), command=script(gate, text), reports=False, standin="hang:shm"
    )
    gate.mark()
    child = gate.measuring()
    ran = running.send(signal.SIGINT).end()
    assert (ran.code, ran.stdout) == (-signal.SIGINT, "interrupted\n")
    assert (ran.report["complete"], ran.report["exit_code"]) == (True, 130)
    assert ran.report["reason"] == "stopped by SIGINT"
    assert not Path(f"/proc/{child}").exists()
    gate.assert_nothing_left()


def test_a_program_that_is_killed_leaves_nothing(clean_gate: Gate) -> None:
    gate = clean_gate
    text = ASK.replace('"shm",', '"shm", report_dir=sys.argv[1],')
    running = gate.start(
        str(gate.reports), command=script(gate, text), reports=False, standin="hang:shm"
    )
    gate.mark()
    assert running.send(signal.SIGKILL).end().code == -signal.SIGKILL
    gate.assert_nothing_left()
    report = wait_until(lambda: read_json(gate.reports / "preflight.json"), bool)
    assert (report["complete"], report["exit_code"]) == (False, 3)


def test_the_processes_that_measure_need_no_program_of_the_callers(gate: Gate) -> None:
    """One that cannot be started is undecided, never a pass."""
    text = "import sys; sys.executable = '/nonexistent/python'" + ASK
    ran = gate.run(command=(sys.executable, "-c", text), reports=False)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "False error set()\n", "")
