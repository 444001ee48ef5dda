"""The image's lock file holds what preflight needs and the base has not, each file by its hash."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

LOCK = (Path(__file__).parents[1] / "docker/requirements.lock").read_text("utf-8")
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)((?: ;.*)?) \\\n((?:    --hash=.*\n?)+)", re.MULTILINE)
OF_THE_BASE = {"torch", "numpy"}


def test_every_need_is_pinned_or_the_bases():
    needs = [need for need in requires("node-preflight") or [] if "extra ==" not in need]
    names = {re.split(r"[^\w-]", need)[0].lower() for need in needs}
    pinned = {name for name, *_ in PINNED.findall(LOCK)}
    assert names - pinned == OF_THE_BASE
    assert {"dumb-init", "setuptools"} <= pinned
    assert not {name for name in pinned if name in OF_THE_BASE or name.startswith("nvidia-c")}


def test_every_line_belongs_to_a_package_with_hashes():
    assert [line for line in PINNED.sub("", LOCK).splitlines() if not line.startswith("#")] == []
    # Two architectures and five Pythons at least, of the one that is compiled for each.
    (hashes,) = [hashes for name, _, _, hashes in PINNED.findall(LOCK) if name == "pydantic-core"]
    assert hashes.count("--hash=sha256:") >= 10
