"""The user's own module, as --dataset names it: how it is found, imported, and what it raised.

Standard library only. It is imported in isolated children alone, never in the process that asks.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preflight.job import Job

_SPEC = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+)', re.MULTILINE)
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_TORCH = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")
_HEADINGS = ("Traceback (most recent call last):", "Original Traceback (most recent call last):")
_PACKAGE = str(Path(__file__).parent) + os.sep
_STDLIB = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_MOST_CHARACTERS = 300

DATA_VARIABLE = "PREFLIGHT_DATA"


class UserCodeError(Exception):
    """What --dataset names cannot be had; the text says why, and where in whose file."""


def parse(spec: str) -> tuple[str, str]:
    """Module and name of "module:factory". Raises UserCodeError."""
    match = _SPEC.fullmatch(spec)
    if match is None or match[1].endswith(".py"):
        raise UserCodeError(
            "write MODULE:FACTORY, such as mypackage.data:make_loader: a module as `import` names "
            "it (no path, no .py) and a function in it"
        )
    return match[1], match[2]


def environment(job: Job, rank: int) -> dict[str, str]:
    """What user code finds in its environment: --data, and its rank as torchrun would set it.

    The ranks of this node alone: no other node takes part.
    """
    own, all_ = str(rank), str(job.ranks)
    ours = {"RANK": own, "LOCAL_RANK": own, "WORLD_SIZE": all_, "LOCAL_WORLD_SIZE": all_}
    # The call from Python does not read the variable: another --data must not be found in it.
    return {**ours, DATA_VARIABLE: job.data or ""}


def set_environment(variables: Mapping[str, str]) -> None:
    """Make it this process's own; an empty value is a variable that is not set."""
    for name, value in variables.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def load(spec: str) -> Any:
    """Import what `spec` names: something to call, or the data themselves.

    The current folder is searched last, so that a file of the user's cannot stand in for one of
    the standard library's. Raises UserCodeError.
    """
    module_name, name = parse(spec)
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module_name or module_name.startswith(f"{missing}."):
            raise UserCodeError(f"there is no module {missing} {_searched(folder)}") from None
        raise UserCodeError(f"importing it raised {said(error)}; {_searched(folder)}") from error
    except SystemExit as error:
        raise UserCodeError(
            f"importing it called sys.exit({error.code!r}){_at(error)}: put what only a script "
            'does under `if __name__ == "__main__":`'
        ) from error
    except Exception as error:
        raise UserCodeError(f"importing it raised {said(error)}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            file = getattr(sys.modules[module_name], "__file__", None) or "built in"
            raise UserCodeError(f"module {module_name} ({file}) has no {name}") from None
    if not callable(found) and not may_be_data(found):
        raise UserCodeError(
            f"{name} is {kind_of(found)}: name a function that returns a Dataset, an "
            "IterableDataset or a DataLoader, or one of these itself"
        )
    return found


def may_be_data(thing: Any) -> bool:
    """Whether torch could load from it; containers and arrays are no data set, only its content."""
    plain = (list, tuple, dict, set, frozenset, str, bytes, bytearray, memoryview, range)
    if thing is None or isinstance(thing, (type, *plain)) or hasattr(thing, "ndim"):
        return False
    return hasattr(thing, "__getitem__") or hasattr(thing, "__iter__")


def kind_of(thing: Any) -> str:
    """In words: "None", "a list", "an int"."""
    if thing is None:
        return "None"
    name = type(thing).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def said(error: BaseException) -> str:
    """The first line of what it says, and where in user code: "ValueError: no (file, line N)".

    What a loader's worker raised is told as it was raised there.
    """
    told, behind_frame = "", False
    for line in _traceback(error).splitlines():
        if _FRAME.match(line):
            behind_frame = True
        elif line and line[0] != " " and (behind_frame or not told) and line not in _HEADINGS:
            told, behind_frame = line, False
    if len(told) > _MOST_CHARACTERS:
        told = told[: _MOST_CHARACTERS - 3] + "..."
    return told + _at(error)


def is_own(file: str) -> bool:
    """Whether a frame's file is the job's own code: not installed, Python's, torch's or ours."""
    return not (file.startswith(("<", _PACKAGE, *_STDLIB)) or _INSTALLED.search(file))


def is_installed(file: str) -> bool:
    """Whether it is of an installed package that is neither torch nor this one."""
    return bool(_INSTALLED.search(file)) and not (file.startswith(_PACKAGE) or _TORCH.search(file))


def _at(error: BaseException) -> str:
    frames = _FRAME.findall(_traceback(error))
    installed = [(file, line) for file, line in frames if is_installed(file)]
    own = [(file, line) for file, line in frames if is_own(file)]
    for file, line in (own or installed)[-1:]:
        return f" ({file}, line {line})"
    return ""


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _searched(folder: str) -> str:
    path = os.environ.get("PYTHONPATH")
    first = f"PYTHONPATH ({path})" if path else "PYTHONPATH (not set)"
    return f"in {first}, among what is installed, and in the current folder ({folder})"
