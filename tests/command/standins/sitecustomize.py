"""Loaded by Python in every process of a command under test: does there what $STANDIN says.

STANDIN is a list of words with commas: raise:CHECK, node:CHECK (whatever it blames, it blames the
node), hang:CHECK, hang:look, hang:start (before that look), hang:import, missing:MODULE,
forbid:MODULE, log, gpu (see standin_gpu.py). A hang makes the file $STANDIN_MARK and goes on when
$STANDIN_MARK.go is there.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from typing import Any

MARK = os.environ.get("STANDIN_MARK", "")
SLEPT_S = 0.02


def around_import(name: str, load: Callable[[Any, Callable[[Any], None]], None]) -> None:
    """Have `load(module, original)` called where a module is loaded; looking for it is free."""

    class Finder:
        @staticmethod
        def find_spec(wanted: str, path: Any = None, target: Any = None) -> Any:
            if wanted != name:
                return None
            sys.meta_path.remove(Finder)
            try:
                spec = importlib.util.find_spec(name)
            finally:
                sys.meta_path.insert(0, Finder)
            if spec is not None and spec.loader is not None:
                original = spec.loader.exec_module
                spec.loader.exec_module = lambda module: load(module, original)  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Finder)


def after_import(name: str, change: Callable[[Any], None]) -> None:
    """Change a module right after it was loaded."""

    def load(module: Any, original: Callable[[Any], None]) -> None:
        original(module)
        change(module)

    around_import(name, load)


def before_import(name: str, act: Callable[[], None]) -> None:
    """Do something when a module is about to be loaded."""

    def load(module: Any, original: Callable[[Any], None]) -> None:
        act()
        original(module)

    around_import(name, load)


def hang(*_: Any, **__: Any) -> None:
    """Say so, and wait."""
    with open(MARK, "a"):
        pass
    for _step in range(int(600 / SLEPT_S)):
        if os.path.exists(f"{MARK}.go"):
            return
        time.sleep(SLEPT_S)


def change_check(check: str, **functions: Callable[..., Any]) -> None:
    """Wrap functions of a check; each gets the original first."""

    def change(module: Any) -> None:
        wrapped = {
            name: functools.partial(function, getattr(module.CHECK, name))
            for name, function in functions.items()
        }
        module.CHECK = dataclasses.replace(module.CHECK, **wrapped)

    after_import(f"preflight.checks.{check}", change)


def raise_in(observe: Any, unit: Any) -> None:
    raise OSError("the stand-in raises")


def blame_node(judge: Any, readings: Any, limits: Any) -> list[Any]:
    from preflight.outcome import Blame

    return [
        finding.model_copy(update={"blame": Blame.NODE}) if finding.blame else finding
        for finding in judge(readings, limits)
    ]


def hang_before(observe: Any, unit: Any) -> Any:
    unit.ready()
    unit.progress("standing in")
    hang()
    return observe(unit)


def forbid(name: str) -> None:
    def leave() -> None:
        os.write(2, f"{name} was imported\n".encode())
        os._exit(99)

    before_import(name, leave)


def log() -> None:
    with open(f"{MARK}.log", "a") as file:
        file.write(" ".join(sys.orig_argv).replace("\n", " ") + "\n")


def main(words: str) -> None:
    for word in filter(None, words.split(",")):
        act, _, where = word.partition(":")
        if act == "raise":
            change_check(where, observe=raise_in)
        elif act == "node":
            change_check(where, judge=blame_node)
        elif act == "forbid":
            forbid(where)
        elif act == "missing":
            sys.modules[where] = None  # type: ignore[assignment]
        elif act == "log":
            log()
        elif act == "gpu":
            import standin_gpu

            standin_gpu.stand_in(after_import)
        elif word == "hang:look":
            after_import("preflight.data.image_folder", lambda m: setattr(m, "look", hang))
        elif word == "hang:start":
            before_import("preflight.data.image_folder", hang)
        elif word == "hang:import":
            before_import("preflight.cli", hang)
        elif act == "hang":
            change_check(where, observe=hang_before)
        else:
            raise ValueError(word)


main(os.environ.get("STANDIN", ""))
