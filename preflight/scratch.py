"""A folder of our own under the temporary directory, which every end of a run removes.

Parent and child know it by the same token: whichever of them outlives the other cleans up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path

_REMOVE_LIMIT_S = 2.0


class Scratch:
    """The folder `preflight-<token>`; made only when somebody needs it."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.name = f"preflight-{token}"
        # As they are now: a child points TMPDIR into the folder itself.
        parents = (os.environ.get("TMPDIR"), "/tmp", "/var/tmp")
        self._parents = tuple(Path(parent) for parent in parents if parent)

    def make(self) -> Path | None:
        """Create it; None where no temporary directory is writable.

        The working directory is not tried, as tempfile would: it may be the job's own.
        """
        for parent in self._parents:
            folder = parent / self.name
            with contextlib.suppress(OSError):
                folder.mkdir(mode=0o700, exist_ok=True)
                return folder
        return None

    def remove(self) -> None:
        """Remove it, whatever is in it; gives up after two seconds on a hanging file system."""
        worker = threading.Thread(target=self._remove, daemon=True)
        try:
            worker.start()
        except RuntimeError:  # no further thread is allowed
            self._remove()
        else:
            worker.join(_REMOVE_LIMIT_S)

    def _remove(self) -> None:
        for parent in self._parents:
            shutil.rmtree(parent / self.name, ignore_errors=True)
