"""One YAML text in, a tree with file:line for every value out; what can be misread is an error.

Nodes are composed, objects are never constructed: no tags, no anchors, no dates, and numbers only
in the one spelling that every reader takes alike. What a value means is not known here.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import yaml

from preflight.settings.tree import Branch, Node, Scalar, SettingsError, Value

MAX_BYTES = 64 * 1024
MAX_DEPTH = 10

_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]+")
_MAX_WHOLE = 2**63
_WORDS: dict[str, Scalar] = {
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
    "null": None, "Null": None, "NULL": None, "~": None,
}  # fmt: skip
_REFUSED = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (
            r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?",
            "is base 60 to YAML: write it in the unit of the key (90 for 1:30), or quote text",
        ),
        (r"[-+]?0x[0-9a-f_]+", "is hexadecimal: write a decimal number"),
        (r"[-+]?0b[01_]+", "is binary: write a decimal number"),
        (r"[-+]?0o[0-7_]+", "is octal: write a decimal number"),
        (
            r"[-+]?0[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?",
            "begins with a 0, which is octal to YAML: write it without, or quote text",
        ),
        (
            r"(?=.*_)[-+]?[0-9][0-9_]*(\.[0-9_]*)?(e[-+]?[0-9_]+)?",
            "has an underscore in a number: write the digits alone",
        ),
        (r"[-+]?\.?(inf|infinity|nan)", "is not a finite number: write a number, or null for none"),
        (r"yes|no|on|off", "is a boolean only in some YAML: write true or false, or quote text"),
    )
)

At = Callable[[int], str]
"""Line number in, place out."""


class _Loader(yaml.SafeLoader):
    """Composes nodes; refuses what would let two readers see two things."""

    at: At
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        place = self.at(event.start_mark.line + 1)
        if isinstance(event, yaml.AliasEvent):
            raise SettingsError(place, f"alias *{event.anchor}: write the values out")
        if event.anchor is not None:
            raise SettingsError(place, f"anchor &{event.anchor}: remove it, aliases are not taken")
        if event.tag is not None:
            raise SettingsError(place, f"tag {event.tag}: remove it, write the value plainly")
        nested = isinstance(event, yaml.CollectionStartEvent)
        self.depth += nested
        if self.depth > MAX_DEPTH:
            raise SettingsError(
                place, f"nested more than {MAX_DEPTH} deep: no section is, check the indentation"
            )
        node = super().compose_node(parent, index)  # type: ignore[arg-type]
        self.depth -= nested
        return node


def parse(data: bytes, file: str) -> Branch:
    """The tree of a file's bytes; `file` is its name in errors and places.

    Raises SettingsError for anything but one plain UTF-8 YAML mapping.
    """

    def at(line: int) -> str:
        return f"{file}:{line}"

    if len(data) > MAX_BYTES:
        raise SettingsError(at(1), f"more than {MAX_BYTES // 1024} KiB: this is no threshold file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(at(line), "not UTF-8: save the file as UTF-8 text") from None
    root = _compose(text, at)
    if not isinstance(root, yaml.MappingNode):
        seen = "empty" if root is None else "not a mapping"
        raise SettingsError(at(1), f"the file is {seen}: write keys and values, `key: value`")
    return Branch(_mapping(root, at), at(1))


def parse_value(text: str, origin: str, key: str) -> Value:
    """A value from the command line, by the rules of a file; its place is `origin`.

    Raises SettingsError; mappings are refused, since every key can be set by itself.
    """

    def at(line: int) -> str:
        return f"{origin}: {key}"

    root = _compose(text, at)
    if root is None:
        raise SettingsError(at(1), "no value: write one, or null to remove the key")
    node = _node(root, at(1), at)
    if isinstance(node, Branch) or isinstance(root, yaml.MappingNode):
        raise SettingsError(at(1), "a mapping cannot be set: set its keys one by one")
    return dataclasses.replace(node, place=origin)


def _compose(text: str, at: At) -> yaml.Node | None:
    tab = text.find("\t")
    if tab >= 0:
        raise SettingsError(at(text.count("\n", 0, tab) + 1), "a tab: write spaces")
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SettingsError(
            at(line), f"not text: character U+{ord(text[error.position]):04X}"
        ) from None
    loader.at = at
    try:
        return loader.get_single_node()
    except yaml.composer.ComposerError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SettingsError(at(line), "a second document: keep one, remove the ---") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise SettingsError(
            at(line), f"not YAML: {error.problem} (check colons, quotes and indentation)"
        ) from None
    except (ValueError, OverflowError):  # the scanner turns "\UFFFFFFFF" into chr()
        line = loader.line + 1
        raise SettingsError(at(line), "not YAML: an escape that names no character") from None
    finally:
        loader.dispose()


def _mapping(node: yaml.MappingNode, at: At) -> dict[str, Node]:
    children: dict[str, Node] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value
        if not isinstance(key_node, yaml.ScalarNode) or not _KEY.fullmatch(key):
            raise SettingsError(
                at(line),
                f"key {_short(key)}: a key is one word of letters, digits, _ and -"
                " (nested keys go into nested mappings, not a.b)",
            )
        if key in children:
            raise SettingsError(
                at(line), f"duplicate key {key} (first on line {lines[key]}): keep one"
            )
        lines[key] = line
        children[key] = _node(value_node, at(line), at)
    return children


def _node(node: yaml.Node, place: str, at: At) -> Node:
    if isinstance(node, yaml.MappingNode):
        children = _mapping(node, at)
        sourced = "value" in children or "source" in children
        return _sourced(children, place) if sourced else Branch(children, place)
    if isinstance(node, yaml.SequenceNode):
        items: list[Scalar] = []
        for item in node.value:
            line = at(item.start_mark.line + 1)
            scalar = _scalar(item, line) if isinstance(item, yaml.ScalarNode) else None
            if scalar is None:
                raise SettingsError(line, "a list holds numbers and text only, no null, no mapping")
            items.append(scalar)
        return Value(items, place)
    assert isinstance(node, yaml.ScalarNode)
    return Value(_scalar(node, place), place)


def _sourced(children: dict[str, Node], place: str) -> Value:
    value, source = children.get("value"), children.get("source")
    if set(children) - {"value", "source"} or not isinstance(value, Value) or value.value is None:
        raise SettingsError(
            place, "a number with its source is {value: 48, source: ...}, and nothing else"
        )
    if source is None:
        return Value(value.value, place)
    if not isinstance(source, Value) or not isinstance(source.value, str) or not source.value:
        raise SettingsError(place, "source is a text that says where the number comes from")
    return Value(value.value, place, source.value)


def _scalar(node: yaml.ScalarNode, place: str) -> Scalar:
    text: str = node.value
    odd = next((c for c in text if not c.isprintable() and c != "\n"), None)
    if odd is not None:
        raise SettingsError(place, f"character U+{ord(odd):04X} in a value: remove it")
    if node.style is not None:  # quoted or a block: text
        return text
    if text == "":
        raise SettingsError(place, "no value: write one, or null to remove the key")
    for pattern, why in _REFUSED:
        if pattern.fullmatch(text):
            raise SettingsError(place, f"{_short(text)} {why}")
    if text in _WORDS:
        return _WORDS[text]
    return _number(text, place) if _NUMBER.fullmatch(text) else text


def _number(text: str, place: str) -> int | float:
    if _WHOLE.fullmatch(text):
        # Digits are counted first: int() itself refuses a text of thousands of digits.
        whole = int(text) if len(text) <= 20 else _MAX_WHOLE
        if abs(whole) >= _MAX_WHOLE:
            raise SettingsError(place, f"{_short(text)} is too large a number")
        return whole
    number = float(text)
    if math.isinf(number):
        raise SettingsError(place, f"{_short(text)} is too large a number")
    return number


def _short(text: object) -> str:
    words = text if isinstance(text, str) else "(a list or mapping)"
    return repr(words if len(words) <= 40 else words[:37] + "...")
