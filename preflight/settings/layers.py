"""Which threshold files there are, and which of them lie on which: find, read, chain.

A file is a layer of one kind. What its sections may hold is not known here (see `sections`), nor is
how layers become settings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from preflight.settings.strict_yaml import MAX_BYTES, parse
from preflight.settings.tree import Branch, Node, SettingsError, Value, did_you_mean

Kind = Literal["base", "gpu", "workload", "site"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_CHAIN = 4

_FOLDERS: dict[Kind, str] = {"base": ".", "gpu": "gpu", "workload": "workload", "site": "."}


@dataclass(frozen=True)
class Layer:
    """One threshold file."""

    name: str
    """As it is shown: `gpu/h100-sxm.yaml` when shipped, else the path as it was written."""
    kind: Kind
    path: Path
    extends: Value | None
    description: str | None
    match: tuple[str, ...]
    """Regular expressions over a whole NVML name; a gpu layer's only."""
    tree: Branch
    """Everything else."""


def find(text: str, kinds: Sequence[Kind], place: str, beside: Path, shipped: Path) -> Layer:
    """The file that `text` names, which has to be of one of `kinds`.

    A word is a file in the shipped folder of `kinds[0]`; anything with a / or ending in .yaml or
    .yml is a path, relative to the folder `beside`. `place` is where it was named. Raises
    SettingsError.
    """
    if "/" in text or text.endswith((".yaml", ".yml")):
        path = beside / text
        name, known = str(path), _files(path.parent)
        wanted = path.name
    else:
        folder = shipped / _FOLDERS[kinds[0]]
        path = folder / f"{text}.yaml"
        name, known = _shown(path, shipped), _stems(folder)
        wanted = text
    try:
        found = path.exists()
    except OSError as error:
        raise SettingsError(place, f"{text} cannot be read: {error.strerror}") from None
    if not found:
        # h100 is spelled more like h200 than like h100-sxm.
        variants = [one for one in known if one.startswith(f"{wanted}-")]
        raise SettingsError(
            place, f"there is no threshold file {text}.{did_you_mean(wanted, variants or known)}"
        )
    layer = read(path, name)
    if layer.kind not in kinds:
        raise SettingsError(
            place,
            f"{name} is of kind {layer.kind}, and kind {' or '.join(kinds)} is needed here"
            f" (a file says `kind: {kinds[0]}` at its top; without, it is a site file)",
        )
    return layer


def read(path: Path, name: str) -> Layer:
    """Read one file. Raises SettingsError."""
    try:
        if not path.is_file():
            seen = "not a regular file" if path.exists() else "there is no such file"
            raise SettingsError(f"{name}:1", seen)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{name}:1", f"cannot be read: {error.strerror}") from None
    tree = parse(data, name)
    children = dict(tree.children)
    kind = _text(children, "kind") or Value("site", tree.place)
    if kind.value not in KINDS:
        raise SettingsError(
            kind.place, f"kind: {kind.value} is no kind.{did_you_mean(str(kind.value), KINDS)}"
        )
    kind_word = kind.value
    description = _text(children, "description")
    return Layer(
        name=name,
        kind=kind_word,
        path=path,
        extends=_text(children, "extends"),
        description=str(description.value) if description else None,
        match=_match(children, kind_word),
        tree=Branch(children, tree.place),
    )


def chain(layer: Layer, shipped: Path) -> list[Layer]:
    """The layer and what it extends, lowest first. Raises SettingsError, also for a circle."""
    found = [layer]
    while (below := _below(found[-1], shipped)) is not None:
        above = found[-1]
        place = above.extends.place if above.extends else f"{above.name}:1"
        if any(below.path.resolve() == seen.path.resolve() for seen in found):
            circle = " -> ".join([*(seen.name for seen in found), below.name])
            raise SettingsError(place, f"extends goes round in a circle: {circle}")
        found.append(below)
        if sum(seen.kind == below.kind for seen in found) > MAX_CHAIN:
            raise SettingsError(
                place, f"extends: more than {MAX_CHAIN} {below.kind} files on each other"
            )
    return found[::-1]


def shipped_layers(kind: Kind, shipped: Path) -> list[Layer]:
    """Every shipped file of a kind, by name. Raises SettingsError."""
    folder = shipped / _FOLDERS[kind]
    return [
        find(stem, (kind,), _shown(folder / f"{stem}.yaml", shipped), folder, shipped)
        for stem in _stems(folder)
    ]


def match_gpu(gpu_name: str, layers: Sequence[Layer]) -> Layer | None:
    """The layer whose `match` fits a whole NVML name. Raises SettingsError when two do."""
    fitting = [
        layer for layer in layers if any(re.fullmatch(pattern, gpu_name) for pattern in layer.match)
    ]
    if len(fitting) > 1:
        raise SettingsError(
            fitting[1].name,
            f"match: {gpu_name!r} is matched by {fitting[0].name} too: narrow one, or choose"
            " with --gpu NAME",
        )
    return fitting[0] if fitting else None


def _below(layer: Layer, shipped: Path) -> Layer | None:
    if layer.extends is None:
        text, place = ("default" if layer.kind == "site" else "none"), f"{layer.name}:1"
    else:
        text, place = str(layer.extends.value), layer.extends.place
    if text == "none":
        return None
    kinds: tuple[Kind, ...] = ("base", "site") if layer.kind == "site" else (layer.kind,)
    return find(text, kinds, place, layer.path.parent, shipped)


def _text(children: dict[str, Node], key: str) -> Value | None:
    node = children.pop(key, None)
    if node is not None and not (isinstance(node, Value) and isinstance(node.value, str)):
        raise SettingsError(node.place, f"{key}: needs a text")
    return node


def _match(children: dict[str, Node], kind: Kind) -> tuple[str, ...]:
    node = children.pop("match", None)
    if node is None:
        return ()
    if kind != "gpu":
        raise SettingsError(node.place, "match: belongs into a file of kind gpu")
    patterns = node.value if isinstance(node, Value) else None
    if not isinstance(patterns, list) or not patterns:
        raise SettingsError(node.place, 'match: needs a list of texts, ["NVIDIA L4"]')
    for pattern in patterns:
        try:
            re.compile(cast(str, pattern))
        except (re.error, OverflowError, RecursionError, TypeError) as error:
            raise SettingsError(
                node.place, f"match: {pattern!r} is not a regular expression: {error}"
            ) from None
    return tuple(cast("list[str]", patterns))


def _files(folder: Path) -> list[str]:
    return sorted(path.name for ending in ("yaml", "yml") for path in folder.glob(f"*.{ending}"))


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def _shown(path: Path, shipped: Path) -> str:
    return path.relative_to(shipped).as_posix()
