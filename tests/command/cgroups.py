"""A cgroup of our own for a command, with a limit in it: version 1 or 2, whichever is mounted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

_CGROUP = Path("/sys/fs/cgroup")


@contextmanager
def limited(
    controller: str, v1: Mapping[str, str], v2: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """The words that start a command in it; skips where none can be made."""
    is_v1 = (_CGROUP / controller / "cgroup.procs").exists()
    above = _CGROUP / controller if is_v1 else _CGROUP
    folder = above / f"preflight-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        try:
            for name, value in (v1 if is_v1 else v2).items():
                (folder / name).write_text(value)
        except OSError as error:
            pytest.skip(f"no {controller} controller for a cgroup of ours: {error.strerror}")
        yield "sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """A group can be removed once the last of its processes has been reaped."""
    for _ in range(100):
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.1)
