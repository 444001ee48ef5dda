"""Runs the installed command as a user does, and says how long it took and what it held in memory.

The peak is VmHWM of the command's own process, read from /proc until it ends: it belongs to that
process image alone, where ru_maxrss would carry over what this bench held when it forked, and
wait4 would add the largest child.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

COMMAND = str(Path(sysconfig.get_path("scripts"), "preflight"))
_POLL_S = 0.02
_LIMIT_S = 180.0
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Ran:
    """One `preflight run`."""

    wall_s: float
    peak_mb: float
    """Of the parent alone, in 10^6 bytes."""
    report: dict[str, Any]

    @property
    def loader(self) -> dict[str, Any]:
        """The dataloader check's result."""
        found: dict[str, Any]
        (found,) = (r for r in self.report["results"] if r["check"] == "dataloader")
        return found

    @property
    def verdict(self) -> str:
        """What the loader's window came to; "none" where there was no decision."""
        return str(((self.loader["reading"] or {}).get("decision") or {}).get("verdict", "none"))

    @property
    def outside_s(self) -> float:
        """Wall time that is neither the loader's measuring window nor its warm-up second."""
        warmup_s = float(self.report["settings"]["values"]["stats.warmup_s"]["value"])
        return self.wall_s - float(self.loader["reading"]["window_s"]) - warmup_s


def gate(*options: str, variables: Mapping[str, str] = MappingProxyType({})) -> Ran:
    """Run the gate with the cpu thresholds and `options`.

    Raises:
        RuntimeError: it left no report, or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as folder:
        arguments = [COMMAND, "run", "--thresholds", "cpu", "--report-dir", folder, *options]
        began = time.monotonic()
        with Path(folder, "errors").open("wb") as errors:
            process = subprocess.Popen(
                arguments,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**environment(), **variables},
            )
        peak_kib = _watch(process)
        wall_s = time.monotonic() - began
        try:
            report = json.loads(Path(folder, "preflight.json").read_text())
        except OSError:
            text = Path(folder, "errors").read_text()
            raise RuntimeError(f"exit {process.returncode}, no report: {text[-300:]}") from None
    if not report["complete"]:
        raise RuntimeError(f"exit {process.returncode}, the report was never completed")
    return Ran(wall_s, peak_kib * 1024 / 1e6, report)


def environment() -> dict[str, str]:
    """Ours without what would change the command's options or its start.

    Installed packages have their byte code; a checkout has it unless this variable forbids it.
    """
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("PREFLIGHT_") and name != "PYTHONDONTWRITEBYTECODE"
    }


def peak_kib(status: str) -> int:
    """VmHWM of /proc/PID/status; 0 for a process that has ended."""
    found = _PEAK.search(status)
    return int(found[1]) if found else 0


def _watch(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end; the highest peak that was read."""
    highest, deadline = 0, time.monotonic() + _LIMIT_S
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"still running after {_LIMIT_S:g} s")
            highest = max(highest, peak_kib(Path(f"/proc/{process.pid}/status").read_text()))
            time.sleep(_POLL_S)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    return highest
