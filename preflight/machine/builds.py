"""Which torch is installed, without importing it: its version file is read as text.

Importing torch takes seconds, may start CUDA, and may crash where the image is broken.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from preflight.facts import Torch

_VERSION = re.compile(r"""^__version__\s*(?::[^=\n]*)?=\s*['"]([^'"\n]+)['"]""", re.MULTILINE)
_CUDA = re.compile(r"""^cuda\s*(?::[^=\n]*)?=\s*['"]([^'"\n]+)['"]""", re.MULTILINE)
_HIP = re.compile(r"""^hip\s*(?::[^=\n]*)?=\s*['"]([^'"\n]+)['"]""", re.MULTILINE)


def torch_build(search_path: Sequence[str] | None = None) -> Torch | None:
    """Version and CUDA of the torch that `import torch` would find; None without one.

    Looks in the folders of `search_path` in order; None: as this interpreter imports.
    """
    spec = _find(search_path)
    if spec is None or spec.origin is None:
        return None
    try:
        return parse_version(Path(spec.origin).with_name("version.py").read_text(errors="replace"))
    except OSError:
        return None


def parse_version(text: str) -> Torch | None:
    """The torch that a torch/version.py describes; cuda and hip are None in a build without."""
    version, cuda, hip = (pattern.search(text) for pattern in (_VERSION, _CUDA, _HIP))
    if version is None:
        return None
    return Torch(version=version[1], cuda=cuda[1] if cuda else None, hip=hip[1] if hip else None)


def _find(search_path: Sequence[str] | None) -> ModuleSpec | None:
    if search_path is not None:
        return PathFinder.find_spec("torch", search_path)
    try:
        return importlib.util.find_spec("torch")
    except (ImportError, ValueError):  # a torch without a spec in sys.modules, a broken finder
        return None
