"""A folder of our own under the temporary directory, which every end of a run removes.

Parent and child know it by the same token: whichever of them outlives the other cleans up.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

_REMOVE_LIMIT_S = 2.0


class Scratch:
    """The folder `preflight-<token>`; made only when somebody needs it."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._parent = _writable_parent()

    def path(self) -> Path | None:
        """Where it is or would be; None when no temporary directory is writable."""
        return None if self._parent is None else self._parent / f"preflight-{self.token}"

    def make(self) -> Path | None:
        """Create it; None when that is not possible."""
        folder = self.path()
        try:
            if folder is not None:
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return None
        return folder

    def remove(self) -> None:
        """Remove it, whatever is in it; gives up after two seconds on a hanging file system."""
        folder = self.path()
        if folder is None or not folder.exists():
            return
        worker = threading.Thread(
            target=shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, daemon=True
        )
        worker.start()
        worker.join(_REMOVE_LIMIT_S)


def _writable_parent() -> Path | None:
    """The temporary directory; never the working directory, which may be the job's."""
    for parent in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp"):
        if parent and os.access(parent, os.W_OK | os.X_OK):
            return Path(parent)
    return None
