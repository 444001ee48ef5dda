"""Stand-ins for the machine: a Root over recorded files whose system calls come from a file too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from preflight.machine.kernel_text import cpu_list
from preflight.machine.root import Entry, FileSystemSpace, Ram, Rlimit, Root, Uname

MACHINES = Path(__file__).parent / "machines"


class FixtureRoot(Root):
    """One of tests/machines/: files as they lie there, system calls from its syscalls.json.

    What syscalls.json does not name is answered as by a machine without it: no file system, an
    unlimited rlimit, a folder that may not be written to, a user that is not root.
    """

    @classmethod
    def named(cls, name: str) -> FixtureRoot:
        return cls(str(MACHINES / name))

    @cached_property
    def _calls(self) -> dict[str, Any]:
        calls: dict[str, Any] = json.loads(Path(self.path, "syscalls.json").read_text())
        return calls

    def space(self, name: str) -> FileSystemSpace | None:
        answer = self._calls["statvfs"].get(name)
        return FileSystemSpace(**answer) if answer else None

    def entries(self, name: str) -> list[Entry]:
        return [Entry(*entry) for entry in self._calls["entries"].get(name, ())]

    def ram(self) -> Ram:
        return Ram(**self._calls["ram"])

    def affinity(self) -> frozenset[int]:
        return cpu_list(self._calls["affinity"])

    def rlimit(self, name: str) -> Rlimit:
        return Rlimit(*self._calls["rlimits"].get(name, (None, None)))

    def writable(self, name: str) -> bool:
        return name in self._calls.get("writable", ())

    def uid(self) -> int:
        return int(self._calls.get("uid", 1000))

    def uname(self) -> Uname:
        return Uname(**self._calls["uname"])


def machine_names() -> list[str]:
    """All fixture roots."""
    return sorted(folder.name for folder in MACHINES.iterdir())


def write_machine(folder: Path, files: Mapping[str, str]) -> Root:
    """A machine with just these files, for tests that change them."""
    for name, text in files.items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Root(str(folder))
