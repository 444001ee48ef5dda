"""Starts the real command and reads what it left: streams, code, reports, processes, files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import junitparser

from preflight.machine.cgroup import read_cgroups
from preflight.machine.container import is_root, runtime
from preflight.machine.root import host
from tests.report.reading_junit import outcome, read

MODULE = (sys.executable, "-m", "preflight")
SCRIPT = (str(Path(sys.executable).with_name("preflight")),)
STANDINS = Path(__file__).parent / "standins"
SHM = Path("/dev/shm")

FAIL_LIMITS = "--set=limits.min_memory_headroom_gib=1e6"
FAIL_SHM = "--set=shm.min_free_gib=1e6"
# One tiny sample, one worker: what a loader needs to come to a verdict on any machine.
SMALL_LOADER = (
    "--set=loader.num_workers=1", "--set=loader.batch_size=4", "--set=sample.shape=[3,32,32]",
    "--set=dataloader.min_samples_per_s=0.5", "--set=limits.min_memory_headroom_gib=0",
    "--set=shm.min_free_gib=0",
)  # fmt: skip

# Where tests run as root in a container, a node without a fault has that warning.
AS_ROOT_IN_A_CONTAINER = is_root(host()) and runtime(host(), read_cgroups(host()), {}) is not None
PASS_HERE = "warn" if AS_ROOT_IN_A_CONTAINER else "pass"

_PATIENCE_S = 60.0
_LINGER_S = 5.0


@dataclass(frozen=True)
class Ran:
    """A run that ended."""

    code: int
    stdout: str
    stderr: str
    reports: Path

    @property
    def report(self) -> dict[str, Any]:
        """preflight.json, read as strictly as the strictest reader."""
        return read_json(self.reports / "preflight.json")

    @property
    def junit(self) -> junitparser.JUnitXml:
        """preflight.xml, by readers that are not ours; valid against the safe subset."""
        return read((self.reports / "preflight.xml").read_bytes())

    def result(self, check: str) -> dict[str, Any]:
        """One check's result."""
        (found,) = [result for result in self.report["results"] if result["check"] == check]
        return dict(found)

    def finding(self, id: str) -> dict[str, Any]:
        """One finding."""
        check = id.partition(".")[0]
        (found,) = [entry for entry in self.result(check)["findings"] if entry["id"] == id]
        return dict(found)


@dataclass
class Gate:
    """Runs of the command in folders of their own, with nothing of ours left behind."""

    folder: Path
    temporary: Path
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)
    shm: Path | None = None
    """What the command sees as /dev/shm, when it has one of its own."""
    covered: bool = True
    """Whether coverage measures it, which costs every process of it a tenth of a second, writes
    files and hooks os._exit."""

    @property
    def reports(self) -> Path:
        """Where reports go unless a test says otherwise."""
        return self.folder / "reports"

    def environment(self, **changes: str | None) -> dict[str, str]:
        """A usual one, free of the test machine's own PREFLIGHT_ variables."""
        usual = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PREFLIGHT_" if self.covered else ("PREFLIGHT_", "COVERAGE_"))
            and name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "NODE_NAME", "PYTHONPATH")
        }
        usual |= {"STANDIN_TAG": self.tag, "TMPDIR": str(self.temporary)}
        # The shipped sets expect a GPU, and few machines that run this have one.
        usual["PREFLIGHT_GPU"] = "none"
        return {k: v for k, v in {**usual, **changes}.items() if v is not None}

    def start(
        self,
        *arguments: str,
        command: Sequence[str] = MODULE,
        wrapped: Sequence[str] = (),
        standin: str = "",
        env: Mapping[str, str | None] | None = None,
        reports: bool = True,
        **popen: Any,
    ) -> Running:
        """Start it; `standin` says what standins/sitecustomize.py is to do in it."""
        changes = dict(env or {})
        if standin:
            path = os.pathsep.join(filter(None, [str(STANDINS), changes.get("PYTHONPATH")]))
            changes |= {"STANDIN": standin, "PYTHONPATH": path}
            changes.setdefault("STANDIN_MARK", str(self.folder / "mark"))
        if reports:
            arguments = (*arguments, f"--report-dir={self.reports}")
        if self.shm is not None:
            wrapped = (*in_own_mounts(f"mount --bind {self.shm} {SHM}"), *wrapped)
        options = {"stdin": subprocess.DEVNULL, "cwd": self.folder, "start_new_session": True}
        errors = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
        process = subprocess.Popen(
            [*wrapped, *command, *arguments], env=self.environment(**changes),
            **{"stdout": subprocess.PIPE, "stderr": errors, **options, **popen},
        )  # fmt: skip
        return Running(self, process, errors)

    def run(self, *arguments: str, **options: Any) -> Ran:
        """Run it to its end."""
        return self.start(*arguments, **options).end()

    def mark(self) -> Path:
        """Wait until a stand-in says that it is where it was told to hang."""
        return Path(wait_until(lambda: self.folder / "mark", Path.exists))

    def processes(self) -> list[int]:
        """Everything that was started from here and still runs."""
        return [pid for pid in _pids() if self._is_ours(pid)]

    def measuring(self) -> int:
        """The pid of the isolated process that measures now; its group holds the workers too."""
        return int(wait_until(self._measuring, bool)[0])

    def _measuring(self) -> list[int]:
        return [pid for pid in self.processes() if b"preflight.child" in _read(pid, "cmdline")
                and os.getpgid(pid) == pid]  # fmt: skip

    def _is_ours(self, pid: int) -> bool:
        return f"STANDIN_TAG={self.tag}".encode() in _read(pid, "environ").split(b"\0")

    def assert_nothing_left(self) -> None:
        """No process, no file in the temporary directory, none in /dev/shm."""
        wait_until(self.processes, lambda pids: not pids, _LINGER_S)
        for folder in filter(None, (self.temporary, self.shm)):
            left = sorted(os.listdir(folder))
            assert not left, f"left in {folder}: {left}"

    def close(self) -> None:
        """End what a test left running, however it ended."""
        for pid in self.processes():
            kill(pid, signal.SIGKILL)
        shutil.rmtree(self.temporary, ignore_errors=True)
        if self.shm is not None:
            shutil.rmtree(self.shm, ignore_errors=True)


@dataclass
class Running:
    """A run that goes on."""

    gate: Gate
    process: subprocess.Popen[bytes]
    errors: Any

    def stderr(self) -> str:
        """What it has said so far."""
        return os.pread(self.errors.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait_for(self, text: str) -> Running:
        """Wait until it says `text` on standard error."""
        wait_until(self.stderr, lambda said: text in said or self.process.poll() is not None)
        assert text in self.stderr(), f"{text!r} was never said: {self.stderr()}"
        return self

    def send(self, number: signal.Signals) -> Running:
        """Send a signal to the gate itself."""
        self.process.send_signal(number)
        return self

    def end(self, patience_s: float = _PATIENCE_S) -> Ran:
        """Wait for its end, and for the end of its output."""
        stdout, _ = self.process.communicate(timeout=patience_s)
        said = self.stderr()
        self.errors.close()
        out = (stdout or b"").decode(errors="replace")
        return Ran(self.process.returncode, out, said, self.gate.reports)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON document without NaN or Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in {path}")

    document: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    return document


def assert_one_verdict(ran: Ran, code: int) -> None:
    """Process, JSON and JUnit say the same; nothing that is not a pass looks green."""
    assert ran.code == code, f"{ran.stdout}\n{ran.stderr}"
    report, suites = ran.report, ran.junit
    assert (report["complete"], report["exit_code"]) == (True, code)
    (suite,) = suites
    properties = {entry.name: entry.value for entry in suite.properties()}
    if properties:  # a run that ended before it could plan has none
        assert properties["exit_code"] == str(code)
        assert properties["outcome"] == report["outcome"]
    words = [outcome(case) for case in suite]
    red = "fail" in words or "error" in words
    assert red == (code != 0 or report["outcome"] in ("fail", "error"))
    said = [entry["outcome"] for result in report["results"] for entry in result["findings"]]
    assert words.count("fail") == said.count("fail")
    assert words.count("skip") == said.count("skip")
    assert sorted(os.listdir(ran.reports)) == ["preflight.json", "preflight.xml"]


def in_own_mounts(setup: str) -> tuple[str, ...]:
    """Run a command where `setup` changed the mounts for it alone; needs root."""
    return ("unshare", "-m", "sh", "-c", f'{setup} && exec "$@"', "sh")


def can_mount() -> bool:
    """Whether in_own_mounts works here."""
    try:
        return subprocess.run([*in_own_mounts("true"), "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def wait_until(
    look: Callable[[], Any], good: Callable[[Any], bool], seconds: float = _PATIENCE_S
) -> Any:
    """Look again and again until what is seen is good; an AssertionError when it never is."""
    deadline = time.monotonic() + seconds
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"not in {seconds:g} s; at the end: {seen!r}"
        time.sleep(0.02)
    return seen


def kill(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _pids() -> Iterable[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
