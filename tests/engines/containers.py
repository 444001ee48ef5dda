"""Gates in containers: how they are started, and what is left of one that ended."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.command.running import SMALL_LOADER
from tests.engines.engine import Engine

HARDENED = (
    "--read-only", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges",
    "--user=4242:4243",
)  # fmt: skip
HOST = ("run", "--thresholds=cpu", "--no-color", *SMALL_LOADER)
QUICK = (*HOST, "--check=shm")
FAIL = "--set=shm.min_free_gib=1e6"


@dataclass(frozen=True)
class Gated:
    """A gate that ended."""

    code: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        """What it left in /reports."""
        return dict(json.loads((self.folder / "preflight.json").read_text("utf-8")))

    @property
    def verdict(self) -> str:
        """Its first line."""
        return self.stdout.partition("\n")[0]

    def shown(self) -> str:
        """For an assertion that failed."""
        return f"exit {self.code}\n{self.stdout}\n{self.stderr}"


def gate(
    engine: Engine, folder: Path, *arguments: str, options: tuple[str, ...] = HARDENED,
    image: str = "",
) -> Gated:  # fmt: skip
    """Run the image's gate with a folder for its reports that every UID may write to."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    done = engine.run(
        *options, "--tmpfs=/tmp", "-v", f"{folder}:/reports", image or engine.image(), *arguments
    )
    return Gated(done.returncode, done.stdout, done.stderr, folder)


@contextmanager
def detached(engine: Engine, *arguments: str) -> Iterator[str]:
    """A container that goes on; its name."""
    name = f"pf-{uuid.uuid4().hex[:12]}"
    try:
        done = engine("run", "-d", "--name", name, *arguments)
        assert done.returncode == 0, done.stderr
        yield name
    finally:
        engine("rm", "-f", name)
