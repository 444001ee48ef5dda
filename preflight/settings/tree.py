"""A threshold file as a tree whose values know their file and line; merging such trees. Pure.

It knows no section and no check, reads no file, and decides nothing about what a value may be.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Scalar = str | int | float | bool | None


class SettingsError(Exception):
    """A threshold file or an option is wrong. The text begins with where: `site.yaml:3: `."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(f"{place}: {text}")


@dataclass(frozen=True)
class Value:
    """A leaf. None stands for `null`: the key is removed from the layers below."""

    value: Scalar | list[Scalar]
    place: str
    """`site.yaml:6`, or the name of an option or variable."""
    source: str | None = None


@dataclass(frozen=True)
class Branch:
    """A mapping; its place is the line of its key."""

    children: dict[str, Node]
    place: str


Node = Value | Branch


def merge(lower: Branch, upper: Branch) -> Branch:
    """`upper` laid over `lower`: mappings merge, anything else replaces, null removes.

    The result holds no null. A value is replaced together with its source.
    """
    children = dict(lower.children)
    for key, node in upper.children.items():
        below = children.get(key)
        if isinstance(node, Branch):
            base = below if isinstance(below, Branch) else Branch({}, node.place)
            children[key] = merge(base, node)
        elif node.value is None:
            children.pop(key, None)
        else:
            children[key] = node
    return Branch(children, upper.place)


def flatten(tree: Branch, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Every leaf with its dotted key, in the order of the tree."""
    for key, node in tree.children.items():
        if isinstance(node, Branch):
            yield from flatten(node, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", node


def plain(node: Node) -> Any:
    """The same as plain dictionaries and values."""
    if isinstance(node, Branch):
        return {key: plain(child) for key, child in node.children.items()}
    return node.value


def put(path: Sequence[str], node: Node) -> Branch:
    """A tree that holds nothing but `node` at `path` (at least one key)."""
    inner = node if len(path) == 1 else put(path[1:], node)
    return Branch({path[0]: inner}, node.place)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean X?` when something is near, else the list of what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f" Did you mean {near[0]}?"
    return f" Known: {', '.join(names)}." if names else ""
