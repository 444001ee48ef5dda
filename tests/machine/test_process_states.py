"""What a process is seen doing: on texts, and on real processes that do one thing only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from preflight.machine.process_states import (
    Call,
    Look,
    doing,
    look,
    major_faults,
    parse_major_faults,
    parse_state,
    parse_syscall,
)
from preflight.machine.root import host
from tests.command.hanging import storage
from tests.fakes import write_machine

pytestmark = pytest.mark.timeout(60)
MACHINE = os.uname().machine
STAT = "7 (a) b) S 1 1 1 0 -1 4194304 75 0 25 0 0 0 0 0 20 0 1 0"


def test_the_states_letter_stands_behind_the_last_bracket() -> None:
    assert parse_state(STAT) == "S"
    assert parse_major_faults(STAT) == 25
    for text in (None, "", "7 (a", "7 (a) ", "7 (a) running 1"):
        assert parse_state(text) is None
        assert parse_major_faults(text) is None


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("running\n", "running"),
        ("230 0x0 0x0 0x7ffd838e3f10 0x7ffd838e3f50 0x0 0x0 0x7ffd 0x7faa\n", Call(230, 0)),
        ("0 0x5 0x7f 0x1000 0x0 0x0 0x0 0x7ffd 0x7faa\n", Call(0, 5)),
        ("-1 0x7ffd838e3ef8 0x7faa3461f503\n", Call(-1, 0)),
        ("0 0xnonsense 0x0 0x0 0x0", None),
        ("nonsense", None),
        ("", None),
        (None, None),
    ],
)
def test_system_calls_as_the_kernel_writes_them(text: str | None, call: object) -> None:
    assert parse_syscall(text) == call


@pytest.mark.parametrize(
    ("machine", "state", "number", "target", "kind"),
    [
        ("x86_64", "S", 45, None, "socket"),
        ("aarch64", "S", 207, None, "socket"),
        ("x86_64", "S", 202, None, "lock"),
        ("aarch64", "S", 98, None, "lock"),
        ("x86_64", "S", 230, None, "sleep"),
        ("aarch64", "S", 115, None, "sleep"),
        ("x86_64", "S", 7, None, "poll"),
        ("aarch64", "S", 73, None, "poll"),
        ("x86_64", "D", 17, "/data/a.jpg", "disk"),
        ("x86_64", "S", 0, "/data/a.jpg", "disk"),  # as FUSE and NFS wait
        ("x86_64", "S", 0, "socket:[123]", "socket"),  # TLS reads like this
        ("x86_64", "S", 0, "pipe:[123]", "pipe"),
        ("x86_64", "S", 0, None, "other"),
        ("x86_64", "D", 0, None, "disk"),
        ("aarch64", "D", 67, "/data/a.jpg", "disk"),
        ("x86_64", "S", 257, None, "disk"),
        ("x86_64", "D", -1, None, "disk"),  # a page of a map
        ("x86_64", "S", 61, None, "other"),  # wait4
        ("riscv64", "S", 98, None, None),
        ("riscv64", "D", 98, None, "disk"),
    ],
)
def test_kinds_of_waiting(
    machine: str, state: str, number: int, target: str | None, kind: str | None
) -> None:
    assert doing(state, Call(number, 3), target, machine) == kind


def test_where_system_calls_are_hidden_only_the_state_is_known(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {
        "/proc/1/stat": STAT, "/proc/2/stat": STAT.replace(" S ", " D "),
        "/proc/3/stat": STAT.replace(" S ", " R "), "/proc/4/stat": STAT.replace(" S ", " Z "),
    })  # fmt: skip
    assert [look(root, pid, "x86_64") for pid in (1, 2, 3, 4, 5)] == [
        Look(None, False), Look("disk", True), Look("running", False), None, None,
    ]  # fmt: skip
    assert major_faults(root, [1, 2, 9]) == 50
    assert major_faults(root, [9]) is None


@contextmanager
def running(code: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python that says a line and then does one thing."""
    command = [sys.executable, "-c", f"print('on', flush=True)\n{code}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def seen(pid: int, times: int = 20) -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for _ in range(times):
        time.sleep(0.01)
        found[getattr(look(host(), pid, MACHINE), "doing", "gone")] += 1
    return found


def mostly(pid: int, kind: str) -> bool:
    """Until it does: it may take a while to get there."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if seen(pid)[kind] >= 15:
            return True
    return False


ONE_THING = {
    "sleep": "import time; time.sleep(60)",
    "lock": "import threading; a = threading.Lock(); a.acquire(); a.acquire()",
    "pipe": "import os; os.read(os.pipe()[0], 1)",
    "socket": "import socket; a, b = socket.socketpair(); a.recv(1)",
    "socket by read": "import socket, os; a, b = socket.socketpair(); os.read(a.fileno(), 1)",
    "poll": "import select, os; select.select([os.pipe()[0]], [], [])",
    "running": "while True: pass",
}


@pytest.mark.skipif(MACHINE not in ("x86_64", "aarch64"), reason="other numbers")
@pytest.mark.parametrize("kind", sorted(ONE_THING))
def test_a_process_that_does_one_thing_is_seen_doing_it(kind: str) -> None:
    with running(ONE_THING[kind]) as process:
        if Path(f"/proc/{process.pid}/syscall").exists() or kind == "running":
            assert mostly(process.pid, kind.split()[0])


@pytest.mark.skipif(MACHINE not in ("x86_64", "aarch64"), reason="other numbers")
def test_a_read_that_a_file_system_does_not_answer(tmp_path: Path) -> None:
    with storage(tmp_path) as mounted:
        (mounted.source / "sample").write_bytes(b"x" * 5000)
        mounted.hang("read")
        with running(
            "import sys; open(sys.argv[1], 'rb').read()", str(mounted.folder / "sample")
        ) as p:
            found = mostly(p.pid, "disk")
            mounted.heal()
            p.wait(10)
        assert found
