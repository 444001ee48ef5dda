"""Writes report files through a child, so that a hanging report folder cannot hang the gate.

The child (`python -c ... serve`) uses the standard library only, takes frames on its standard
input and answers each with one line. Files are replaced by rename: a reader never sees half a
report. When the child does not answer in time the reports are lost, said once, and the run goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO

ANSWER_LIMIT_S = 5.0
_BOOTSTRAP = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv.pop(1)]; "
    "from preflight.deliver import serve; serve(sys.argv[1])"
)


class Undeliverable(Exception):
    """The report folder cannot be written, or does not answer."""


class Delivery:
    """An open report folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-c",
                _BOOTSTRAP,
                str(Path(__file__).resolve().parents[1]),
                folder,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_ready(self) -> None:
        """Wait until the folder has proved writable.

        Raises:
            Undeliverable: it is not, or did not answer in time.
        """
        self._answer()

    def write(self, files: dict[str, bytes]) -> None:
        """Replace files in the folder.

        Raises:
            Undeliverable: at least one could not be written; the text names it and says why.
        """
        for name, content in files.items():
            header = json.dumps({"name": name, "size": len(content)}).encode() + b"\n"
            try:
                self._send(header + content)
            except BrokenPipeError:
                raise Undeliverable(f"{self.folder}: the writing process is gone") from None
            self._answer()

    def close(self) -> None:
        """Let the child go; one that is stuck is killed and left to the kernel."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        fd = self._process.stdin.fileno()
        os.set_blocking(fd, False)  # a stopped child must not stop us
        while data:
            self._wait(fd, selectors.EVENT_WRITE)
            data = data[os.write(fd, data) :]

    def _answer(self) -> None:
        assert self._process.stdout is not None
        self._wait(self._process.stdout.fileno(), selectors.EVENT_READ)
        answer = self._process.stdout.readline().decode(errors="replace").strip()
        if answer != "ok":
            raise Undeliverable(f"{self.folder}: {answer or 'the writing process died'}")

    def _wait(self, fd: int, event: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(fd, event)
            if not selector.select(ANSWER_LIMIT_S):
                raise Undeliverable(
                    f"{self.folder}: no answer in {ANSWER_LIMIT_S:.0f} s (a hanging file system?)"
                )


def serve(folder: str) -> None:
    """The child's loop: prove the folder writable, then write frames until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    if not _say(stdout, partial(_prove_writable, folder)):
        return
    while line := stdin.readline():
        header = json.loads(line)
        content = stdin.read(header["size"])
        if len(content) < header["size"]:
            return
        _say(stdout, partial(_replace, Path(folder, header["name"]), content))


def _say(stdout: BinaryIO, action: Callable[[], None]) -> bool:
    """Do it and answer "ok", or the kernel's words for why not."""
    try:
        action()
        answer = "ok"
    except OSError as error:
        answer = os.strerror(error.errno) if error.errno else str(error)
    stdout.write(answer.encode() + b"\n")
    stdout.flush()
    return answer == "ok"


def _prove_writable(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=".preflight-", dir=folder)
    os.close(fd)
    Path(name).unlink()


def _replace(path: Path, content: bytes) -> None:
    fd, name = tempfile.mkstemp(prefix=".preflight-", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            # Readable by the collector that runs as another user, as a plain write would be.
            os.fchmod(fd, 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
