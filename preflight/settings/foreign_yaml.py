"""Someone else's YAML as plain data, and its fields by dotted key, each with a sentence if wrong.

Looser than `strict_yaml` (aliases and YAML's other spellings are taken), as safe: no tags but
YAML's own, a bound on size, and nothing is substituted. Mappings, lists and scalars come out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from preflight.settings.strict_yaml import MAX_BYTES
from preflight.settings.tree import SettingsError

_MOST = 1e15
_SHOWN = 40
_MARKS = re.compile(r"\$\{|\?\?\?")  # hydra's: filled in from elsewhere, and still to be given


class _Loader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; hydra refuses such a file, and so do we."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    problem=f"duplicate key {key.value}", problem_mark=key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(data: bytes, file: str) -> Fields:
    """The fields of a file's bytes, those under `workload:` where there is such a key.

    Raises:
        SettingsError: too large, not YAML, or no mapping.
    """
    file = printable(file)
    if len(data) > MAX_BYTES:
        raise SettingsError(file, f"more than {MAX_BYTES // 1024} KiB: this is no workload file")
    try:
        tree = yaml.load(data, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"{file}:{mark.line + 1}" if mark else file
        raise SettingsError(line, f"not YAML: {printable(str(error.problem))}") from None
    # Characters that are no text, dates and numbers that no calendar or float has, nesting.
    except (yaml.YAMLError, ValueError, OverflowError, TypeError, RecursionError) as error:
        reason = printable(str(error).partition("\n")[0]) or type(error).__name__
        raise SettingsError(file, f"not YAML: {reason}") from None
    if not isinstance(tree, dict):
        seen = "empty" if tree is None else "not a mapping"
        raise SettingsError(file, f"the file is {seen}: a workload has keys and values")
    inner = tree.get("workload")
    return Fields(inner if isinstance(inner, dict) else tree, file)


def printable(text: str, most: int = 120) -> str:
    """The text on one line, without what a terminal or a YAML reader would stumble over."""
    return "".join(c if c.isprintable() else "?" for c in text)[:most]


class Fields:
    """Values by dotted key; it remembers which were asked for."""

    def __init__(self, tree: dict[Any, Any], file: str) -> None:
        self.file = file
        self._tree = tree
        self._taken: set[str] = set()

    def error(self, text: str) -> SettingsError:
        """One line that begins with the file."""
        return SettingsError(self.file, printable(text, 400))

    def has(self, key: str) -> bool:
        """Whether there is a value that is not null."""
        return self._get(key) is not None

    def is_mapping(self, key: str) -> bool:
        """Whether there are keys under it."""
        return isinstance(self._get(key), dict)

    def drop(self, key: str) -> bool:
        """Count it, and what is under it, as asked for; whether it was there."""
        self._taken.add(key)
        return self.has(key)

    def number(
        self, key: str, *, least: float, most: float = _MOST, zero: bool = False, needed: str = ""
    ) -> Any:
        """A finite number above `least` (or 0, where that has a meaning), None where there is none.

        Text that is a number counts: YAML takes 1e-3 for text, hydra does not. With `needed`, which
        says what the number is, a missing one is an error too.
        """
        value = self._scalar(key)
        if value is None:
            if needed:
                raise self.error(f"{key} is missing: {needed}")
            return None
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (ValueError, TypeError, OverflowError):
            number = math.nan
        if zero and number == 0:
            return 0.0
        if not least < number <= most:
            bound = f", at most {most:g}" if most < _MOST or number > most else ""
            raise self.error(
                f"{key}: needs a number above {least:g}{bound}, got {str(value)[:_SHOWN]!r}"
            )
        return number

    def whole(self, key: str, *, zero: bool = False, needed: str = "") -> Any:
        """The same for a whole number."""
        number = self.number(key, least=0, zero=zero, needed=needed)
        if number is not None and number != int(number):
            raise self.error(f"{key}: needs a whole number, got {number:g}")
        return None if number is None else int(number)

    def wholes(self, key: str) -> list[int]:
        """A list of whole numbers from 1, empty where there is none."""
        self._taken.add(key)
        value = self._get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(
            isinstance(item, int) and not isinstance(item, bool) and item > 0 for item in value
        ):
            raise self.error(f"{key}: needs a list of whole numbers from 1")
        if math.prod(value) > _MOST:
            raise self.error(f"{key}: too large")
        return list(value)

    def text(self, key: str) -> str | None:
        """A word; None where there is none, or something else."""
        value = self._scalar(key)
        return printable(value, _SHOWN) if isinstance(value, str) and value else None

    def flag(self, key: str) -> bool | None:
        """True or false, None where there is none."""
        value = self._scalar(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(f"{key}: needs true or false, got {str(value)[:_SHOWN]!r}")
        return value

    def left(self) -> list[str]:
        """The keys that nothing asked for, in the file's order; of a mapping, those under it."""
        return list(self._left(self._tree, ""))

    def _left(self, tree: dict[Any, Any], prefix: str) -> Iterator[str]:
        for key, value in tree.items():
            path = f"{prefix}{printable(str(key), _SHOWN)}"
            if path in self._taken:
                continue
            if isinstance(value, dict) and not prefix:
                yield from self._left(value, f"{path}.")
            else:
                yield path

    def _get(self, key: str) -> Any:
        node: Any = self._tree
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        return node

    def _scalar(self, key: str) -> Any:
        self._taken.add(key)
        value = self._get(key)
        if isinstance(value, str) and _MARKS.search(value):
            raise self.error(
                f"{key}: {value[:_SHOWN]!r} is filled in by hydra: write the value, or import "
                ".hydra/config.yaml of a run's output folder"
            )
        if isinstance(value, list):
            raise self.error(f"{key}: needs one value, got a list")
        return None if isinstance(value, dict) else value
