"""What the user sees while a run goes on: one living line on a terminal, plain lines elsewhere.

Standard error only, so that standard output is the report. A lost standard error loses nothing
but these lines.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import TextIO

# Elsewhere than on a terminal (CI logs), the same check says something new this often.
_EVERY_S = 2.0


class ProgressLines:
    """Progress and notes of one run."""

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._living = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = time.monotonic()
        self._last_check, self._last_at = "", 0.0

    def progress(self, check: str, text: str) -> None:
        """What is being done now."""
        if self._quiet:
            return
        now = time.monotonic()
        line = f"{now - self._began:5.1f} s  {check}" + (f": {text}" if text else "")
        if self._living:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[K{line[:width]}")
        elif text and (check != self._last_check or now - self._last_at >= _EVERY_S):
            self._last_check, self._last_at = check, now
            self._write(f"{line}\n")

    def note(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        self._write(f"preflight: {text}\n")

    def clear(self) -> None:
        """Take the living line away."""
        if self._living and not self._quiet:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
