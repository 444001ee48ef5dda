"""A folder of image files, in class folders or not: a first look, a bounded listing, a fetch.

It stops at a number of files, folders and directory entries, so that a tree of any size costs
about the same. It never decodes. A hanging file system hangs it too: the caller has the clock.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.job import Codec, DataState

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff")

MAX_FILES = 50_000
"""A window of 20 s at 2,500 samples/s reads no file twice; 5.5 GB of 110 kB images."""
MAX_FOLDERS = 50_000
"""One folder per sample is a usual layout; more of them than files is never needed."""
MAX_ENTRIES = 400_000
"""Eight directory entries for each file wanted: labels and masks beside the images."""

_SERVER_GONE = {errno.ENOTCONN, errno.ESTALE, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.EREMOTEIO}
_PROGRESS_EVERY = 256
_FILES_TO_OPEN = 8
_ENTRIES_TO_SEE = 2_000
_FOLDERS_TO_SEE = 100


@dataclass(frozen=True)
class Listing:
    """Files that are samples. Names that are not text survive as surrogate escapes."""

    paths: tuple[str, ...]
    complete: bool
    """False when a limit cut the listing: there may be more files than these."""
    other_files: int
    """Files seen on the way that are not samples."""
    unreadable_folders: int


@dataclass(frozen=True)
class FileSource:
    """Samples that are one file each."""

    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def fetch(self, index: int) -> bytes:
        """The file's bytes; OSError as the storage gives it."""
        return fetch(self.paths[index])

    def name(self, index: int) -> str:
        """The file's path."""
        return self.paths[index]


def fetch(path: str) -> bytes:
    """All bytes of a file, with plain reads, so that /proc/self/io sees them. Raises OSError."""
    with io.FileIO(path) as file:
        return file.readall()


def look(path: str, codec: Codec = "jpeg") -> DataState | None:
    """What there is at `path`; None when there is no such path.

    ok means that a sample file was found and may be opened; no byte of it is read, so that a later
    first touch is still one. With codec raw every file is a sample. "no_answer" is a mount whose
    server is gone; for one that hangs it is for the caller to say, who has the clock.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        return "no_answer" if error.errno in _SERVER_GONE else "unreadable"
    if not stat.S_ISDIR(mode):
        return "not_a_folder"
    # Little, so that a slow but answering file server is done in time: what is not found here, the
    # listing that follows will find.
    search = _Search(codec, _FILES_TO_OPEN, lambda entries: None, _ENTRIES_TO_SEE, _FOLDERS_TO_SEE)
    listing = _walk(path, search)
    if listing.paths:
        return "ok" if any(map(_opens, listing.paths)) else "unreadable"
    if not listing.complete:
        return "ok"
    if listing.unreadable_folders:
        return "unreadable"
    return "no_image" if listing.other_files else "empty"


def list_images(
    path: str,
    *,
    codec: Codec = "jpeg",
    max_files: int = MAX_FILES,
    on_progress: Callable[[int], None] | None = None,
) -> Listing:
    """At most `max_files` sample files under `path`, spread over its sub-folders.

    With codec raw every file is a sample. Level by level, each folder of a level may give an equal
    share of what is still wanted; what is left over then goes to the folders that had more. Links
    to files and folders are followed, a folder is read once. `on_progress` gets the number of
    directory entries seen, for every folder and every 256 entries: silence means that the file
    system does not answer. Folders that cannot be read are counted, never raised.
    """
    note = on_progress or (lambda entries: None)
    search = _Search(codec, max_files, note, MAX_ENTRIES, MAX_FOLDERS)
    return _walk(path, search)


def _walk(path: str, search: _Search) -> Listing:
    level = [path]
    while level and search.wanted():
        level = search.read_level(level)
    search.top_up()
    return Listing(
        tuple(search.found),
        complete=not (search.cut or level or search.limited),
        other_files=search.other_files,
        unreadable_folders=search.unreadable,
    )


class _Search:
    """One walk: what was found, and what is left of its limits."""

    def __init__(
        self,
        codec: Codec,
        max_files: int,
        on_progress: Callable[[int], None],
        max_entries: int,
        max_folders: int,
    ) -> None:
        self.found: dict[str, None] = {}
        self.other_files = 0
        self.unreadable = 0
        self.cut: list[str] = []
        self.limited = False
        self._suffixes = ("",) if codec == "raw" else SUFFIXES
        self._max_files = max_files
        self._max_entries = max_entries
        self._max_folders = max_folders
        self._on_progress = on_progress
        self._entries = 0
        self._read: set[tuple[int, int]] = set()

    def wanted(self) -> int:
        """How many more files may be taken."""
        return self._max_files - len(self.found)

    def read_level(self, folders: list[str]) -> list[str]:
        """Take each folder's share of files; the folders of the next level."""
        share = -(-self.wanted() // len(folders))
        entry_share = -(-(self._max_entries - self._entries) // len(folders))
        below: list[str] = []
        for folder in folders:
            if not self.wanted():
                self.limited = True
                break
            if self._first_visit(folder):
                self._take(folder, share, entry_share, below)
        return below

    def top_up(self) -> None:
        """Fill what is still wanted from folders that held more than their share."""
        for folder in tuple(self.cut):
            for entry in self._scan(folder):
                if not self.wanted():
                    return
                if self._is_sample(entry):
                    self.found[entry.path] = None
            else:
                self.cut.remove(folder)

    def _take(self, folder: str, share: int, entry_share: int, below: list[str]) -> None:
        files_end = len(self.found) + min(share, self.wanted())
        entries_end = self._entries + entry_share
        for entry in self._scan(folder):
            if self._entries > entries_end:
                self.limited = True
                return
            if _is_folder(entry):
                if len(below) < self._max_folders:
                    below.append(entry.path)
                else:
                    self.limited = True
                    return
            elif not self._is_sample(entry):
                self.other_files += 1
            elif len(self.found) < files_end:
                self.found[entry.path] = None
            else:
                self.cut.append(folder)
                return

    def _scan(self, folder: str) -> Iterator[os.DirEntry[str]]:
        self._on_progress(self._entries)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if self._entries >= self._max_entries:
                        self.limited = True
                        return
                    self._entries += 1
                    if self._entries % _PROGRESS_EVERY == 0:
                        self._on_progress(self._entries)
                    yield entry
        except OSError:
            self.unreadable += 1

    def _first_visit(self, folder: str) -> bool:
        try:
            status = os.stat(folder)
        except OSError:
            self.unreadable += 1
            return False
        identity = (status.st_dev, status.st_ino)
        if identity in self._read:
            return False
        self._read.add(identity)
        return True

    def _is_sample(self, entry: os.DirEntry[str]) -> bool:
        if not entry.name.lower().endswith(self._suffixes):
            return False
        try:
            return entry.is_file()  # a pipe named like an image would block a worker for ever
        except OSError:
            return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
