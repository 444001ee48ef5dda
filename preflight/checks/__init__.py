"""The checks: one module each, found by reading this directory.

A module that cannot be imported, or whose CHECK has another id than its file name, stops the run:
a gate that silently shrinks is a false green.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from preflight.checks.contract import Check

_NOT_CHECKS = {"contract"}


def discover() -> dict[str, Check[Any, Any]]:
    """All checks by id.

    Raises:
        ImportError: a module in this folder cannot be imported or holds no fitting CHECK.
    """
    found: dict[str, Check[Any, Any]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        if module_info.name not in _NOT_CHECKS:
            found[module_info.name] = load(module_info.name)
    return found


def load(check_id: str) -> Check[Any, Any]:
    """The check in the module `check_id`."""
    module = importlib.import_module(f"{__name__}.{check_id}")
    check = getattr(module, "CHECK", None)
    if not isinstance(check, Check) or check.id != check_id:
        raise ImportError(f"{module.__name__} must define CHECK = Check(id={check_id!r}, ...)")
    return check
