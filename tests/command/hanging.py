"""Folders that are slow or hang on command, through FUSE; every hang is lifted at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command.running import wait_until

_SCRIPT = Path(__file__).with_name("passthrough.py")


@dataclass(frozen=True)
class Storage:
    """A mounted folder, the folder behind it, and the file that commands it."""

    folder: Path
    source: Path
    control: Path
    server: subprocess.Popen[bytes]

    def hang(self, *operations: str) -> None:
        """From now on these operations do not answer."""
        self._order({"hang": operations})

    def delay(self, **seconds: float) -> None:
        """From now on these operations take so much longer."""
        self._order({"delay": seconds})

    def heal(self) -> None:
        """Answer everything, also what waits now."""
        self._order({})

    def die(self) -> None:
        """Be as a file server that is gone: the mount stays and answers with errors."""
        self.server.kill()
        self.server.wait()

    def _order(self, orders: object) -> None:
        new = self.control.with_suffix(".new")
        new.write_text(json.dumps(orders))
        new.replace(self.control)


@contextmanager
def storage(place: Path) -> Iterator[Storage]:
    """A file system of our own under `place`; skips where there is no FUSE."""
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(f"no FUSE library here: {error}")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse is not there or not ours to use")
    folder, source, control = place / "mounted", place / "source", place / "control.json"
    folder.mkdir()
    source.mkdir()
    command = [sys.executable, str(_SCRIPT), str(source), str(folder), str(control)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE)
    mounted = Storage(folder, source, control, server)
    try:
        wait_until(lambda: os.path.ismount(folder) or server.poll() is not None, bool)
        if server.poll() is not None:
            pytest.skip(f"FUSE cannot mount here: {server.communicate()[1].decode()[-200:]}")
        yield mounted
    finally:
        mounted.heal()
        for unmount in (["umount", "-l"], ["fusermount", "-uz"]):
            with suppress(OSError):
                if subprocess.run([*unmount, folder], capture_output=True).returncode == 0:
                    break
        server.kill()  # whatever still waits for it gets an error at once
        server.communicate()
