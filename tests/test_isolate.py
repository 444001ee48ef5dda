"""Children that finish, raise, die, hang and cannot be killed; parents that vanish."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight import isolate
from preflight.ended import Ended
from preflight.isolate import Stop
from preflight.turns import OneByOne, Together, Turn
from tests.freezing import freezer

pytestmark = pytest.mark.timeout(60)


def run_code(
    code: str,
    *,
    timeout_s: float = 10.0,
    stop: Stop | None = None,
    turn: Turn | None = None,
    total_s: float = math.inf,
    **more: Any,
) -> Ended:
    """Run a child whose task is `code`, with `channel` and `scratch` in scope."""
    request = {"task": "code", "code": code, "scratch": f"test-{os.getpid()}", **more}
    return isolate.run(
        request, timeout_s=timeout_s, stop=stop or Stop(), turn=turn, total_s=total_s
    )


_CODE_TASK = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv.pop(1)]; "
    "import preflight.child as child; import os, time, signal, threading; "
    "child._TASKS['code'] = lambda request, channel, scratch: "
    "exec(request['code'], {**globals(), **locals()}); "
    "child.main(int(sys.argv[1]), int(sys.argv[2]))"
)


@contextlib.contextmanager
def code_task() -> Iterator[None]:
    """Children know the task "code" meanwhile."""
    original = isolate._BOOTSTRAP
    isolate._BOOTSTRAP = _CODE_TASK
    try:
        yield
    finally:
        isolate._BOOTSTRAP = original


@pytest.fixture(autouse=True)
def _knows_code() -> Iterator[None]:
    with code_task():
        yield


def test_the_last_reading_is_the_answer() -> None:
    ended = run_code(
        "channel.ready()\nchannel.send('reading', reading=1)\n"
        "channel.send('reading', reading=2)\nchannel.send('done')"
    )
    assert (ended.kind, ended.answer, ended.ready) == ("done", 2, True)
    assert ended.abandoned_pid is None


def test_what_it_raised_comes_back_with_its_output() -> None:
    ended = run_code("channel.ready()\nprint('hello')\nraise ValueError('no')")
    assert (ended.kind, ended.text) == ("raised", "ValueError: no")
    assert "hello" in ended.output and "Traceback" in ended.output


def test_a_death_is_seen_with_its_signal() -> None:
    ended = run_code("os.kill(os.getpid(), signal.SIGSEGV)")
    assert (ended.kind, ended.exit_signal) == ("died", signal.SIGSEGV)


def test_a_hang_costs_its_own_limit_and_keeps_the_partial_reading() -> None:
    ended = run_code(
        "channel.ready()\nchannel.send('reading', reading=7)\n"
        "channel.send('progress', text='waiting for Godot')\ntime.sleep(600)",
        timeout_s=1.0,
    )
    assert (ended.kind, ended.answer, ended.last_progress) == ("timeout", 7, "waiting for Godot")
    assert ended.exit_signal is None


def test_a_child_deaf_to_sigterm_is_killed() -> None:
    ended = run_code(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nchannel.ready()\ntime.sleep(600)",
        timeout_s=0.2,
    )
    assert (ended.kind, ended.abandoned_pid) == ("timeout", None)


def test_helpers_of_a_finished_child_are_swept(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    ended = run_code(
        f"import subprocess\nchannel.ready()\np = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(p.pid))\nchannel.send('done')"
    )
    assert ended.kind == "done"
    assert_gone(int(pid_file.read_text()))


def test_a_request_larger_than_a_pipe_cannot_hold_up_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolate, "_BOOTSTRAP", "import time; time.sleep(600)")
    ended = isolate.run({"scratch": "x" * 1_000_000}, timeout_s=100, stop=Stop(), total_s=0.5)
    assert ended.kind == "timeout"


def test_a_large_request_arrives() -> None:
    ended = run_code(
        "channel.send('reading', reading=len(request['filler']))", filler="x" * 300_000
    )
    assert ended.answer == 300_000


def test_without_a_descriptor_left_it_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe", full)
    ended = isolate.run({"scratch": "t"}, timeout_s=1, stop=Stop())
    assert ended.kind == "raised" and "Too many open files" in ended.text


def test_a_deleted_working_folder_is_no_fault_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    ended = run_code("channel.send('reading', reading=os.getcwd())")
    assert ended.answer == "/"


def test_an_ignored_sigchld_hides_no_end() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        ended = run_code("channel.ready()\nchannel.send('reading', reading=1)")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert ended.answer == 1


def test_a_stop_ends_it_at_once() -> None:
    stop = Stop()
    threading.Timer(0.5, lambda: setattr(stop, "signal", signal.SIGTERM)).start()
    ended = run_code("channel.ready()\ntime.sleep(600)", timeout_s=100, stop=stop)
    assert ended.kind == "stopped"


def test_only_the_end_of_a_flood_of_output_is_kept() -> None:
    ended = run_code("sys.stdout.write('x' * 1_000_000 + 'END')\nsys.stdout.flush()")
    assert len(ended.output) <= isolate.OUTPUT_TAIL_BYTES
    assert ended.output.endswith("END")


def test_a_child_that_cannot_be_killed_is_abandoned_and_named(tmp_path: Path) -> None:
    ended: list[Ended] = []
    code = f"""channel.ready()
channel.send('reading', reading=os.getpid())
open({str(tmp_path / "pid")!r}, 'w').write(str(os.getpid()))
time.sleep(600)"""
    thread = threading.Thread(target=lambda: ended.append(run_code(code, timeout_s=1.5)))
    with freezer() as freeze:
        thread.start()
        pid = int(wait_for_text(tmp_path / "pid"))
        freeze([pid])
        thread.join(30)
        assert [(end.kind, end.answer, end.abandoned_pid) for end in ended] == [
            ("timeout", pid, pid)
        ]
    assert_gone(pid)


def test_a_child_that_never_starts_has_its_own_limit() -> None:
    isolate._BOOTSTRAP = "import time; time.sleep(600)"  # the fixture puts it back
    ended = isolate.run({"scratch": "t"}, timeout_s=100, stop=Stop(), total_s=0.3)
    assert (ended.kind, ended.ready) == ("timeout", False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_vanished_parent_takes_the_child_along(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import tests.test_isolate as t\n"
        "with t.code_task(): t.run_code('''scratch.make()\nimport subprocess\n"
        "p = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{p.pid}}')\n"
        "time.sleep(600)''')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[1])
    pids = wait_for_text(tmp_path / "pids").split()
    os.kill(parent.pid, number)
    parent.wait(10)
    for pid in pids:
        assert_gone(int(pid))


def test_the_users_folder_cannot_shadow_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('shadowed')")
    (tmp_path / "json.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(tmp_path)
    request = {"task": "look", "path": str(tmp_path), "codec": "jpeg", "scratch": "test"}
    ended = isolate.run(request, timeout_s=10, stop=Stop())
    assert (ended.kind, ended.answer["state"]) == ("done", "no_image")


def wait_for_text(path: Path, seconds: float = 20.0) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError(f"{path} never came")


def assert_gone(pid: int, seconds: float = 10.0) -> None:
    """The process ended (a zombie that nobody reaps counts as ended)."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")


class Never:
    """A turn that does not come."""

    left = False

    def may_go(self) -> bool:
        return False

    def leave(self) -> None:
        self.left = True


def test_who_waits_for_a_turn_has_not_gone_and_its_own_limit_does_not_run() -> None:
    turn = Never()
    ended = run_code(
        "channel.ready()\nchannel.send('done')", timeout_s=0.01, total_s=2.0, turn=turn
    )
    assert (ended.kind, ended.ready, ended.went, ended.by_total) == ("timeout", True, False, True)
    assert turn.left


def test_the_own_limit_counts_from_the_turn() -> None:
    ended = run_code("channel.ready()\ntime.sleep(600)", timeout_s=0.2, total_s=600)
    assert (ended.kind, ended.went, ended.by_total) == ("timeout", True, False)


def test_a_child_that_cannot_start_gives_its_turn_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    turn = Never()
    monkeypatch.setattr(isolate.subprocess, "Popen", refuse)
    assert run_code("", turn=turn).kind == "raised"
    assert turn.left


MARKS = """channel.ready()
open({path!r}, 'a').write('begin ')
time.sleep(0.3)
open({path!r}, 'a').write('end ')
channel.send('done')"""


@pytest.mark.parametrize(
    ("order", "written"),
    [(OneByOne(), "begin end begin end "), (Together(2), "begin begin end end ")],
)
def test_two_units_take_turns_or_begin_together(order: Any, written: str, tmp_path: Path) -> None:
    path = tmp_path / "marks"
    code = MARKS.format(path=str(path))
    threads = [
        threading.Thread(target=run_code, args=(code,), kwargs={"turn": order.turn()})
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert path.read_text() == written


def test_the_environment_of_a_request_is_the_childs_alone() -> None:
    code = (
        "channel.ready()\nchannel.send('reading', reading=os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "channel.send('done')"
    )
    assert run_code(code, environment={"CUDA_VISIBLE_DEVICES": "GPU-1"}).answer == "GPU-1"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != "GPU-1"


def test_what_was_said_in_time_counts_however_late_it_is_read() -> None:
    """A parent that was held up: everything is there, and the limit long over."""
    held_up = threading.Event()

    def pause(text: str) -> None:
        held_up.set()
        time.sleep(1.5)

    code = (
        "channel.ready()\nchannel.send('progress', text='x')\n"
        "channel.send('reading', reading=7)\nchannel.send('done')"
    )
    request = {"task": "code", "code": code, "scratch": "t"}
    ended = isolate.run(request, timeout_s=0.5, stop=Stop(), on_progress=pause)
    assert held_up.is_set()
    assert (ended.kind, ended.answer) == ("done", 7)


def test_a_flood_of_words_does_not_outlast_the_limit() -> None:
    ended = run_code(
        "channel.ready()\nwhile True: channel.send('progress', text='x')", timeout_s=0.5
    )
    assert ended.kind == "timeout"


def test_ready_twice_keeps_the_own_limit() -> None:
    ended = run_code("channel.ready()\nchannel.ready()\ntime.sleep(600)", timeout_s=0.3, total_s=60)
    assert (ended.kind, ended.by_total) == ("timeout", False)


def test_who_breaks_the_wait_leaves_no_child() -> None:
    """Ctrl-C, or the caller's own function that raises."""
    pids: list[int] = []

    def broken(text: str) -> None:
        pids.append(int(text))
        raise KeyboardInterrupt

    request = {
        "task": "code", "scratch": "t",
        "code": "channel.ready()\nchannel.send('progress', text=str(os.getpid()))\ntime.sleep(600)",
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        isolate.run(request, timeout_s=100, stop=Stop(), on_progress=broken)
    assert_gone(pids[0])
