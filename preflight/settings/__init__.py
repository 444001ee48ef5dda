"""Threshold files, environment and flags in, one validated set of settings out.

Every value keeps the file and line (or the option) it came from. Nothing is measured here and the
machine is not looked at: all that can be wrong with a threshold set is found before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from preflight.checks.contract import Limits
from preflight.job import Consumer, Loader, Sample, Stats
from preflight.model import Setting
from preflight.settings.derived import SET_ENVIRONMENT, SET_OPTION, fill_demand, with_origins
from preflight.settings.layers import (
    KINDS,
    Kind,
    Layer,
    chain,
    find,
    match_gpu,
    read,
    shipped_layers,
)
from preflight.settings.sections import Checks, ExpectSection, RunSection, build, validate
from preflight.settings.strict_yaml import parse_value
from preflight.settings.tree import Branch, SettingsError, Value, did_you_mean, flatten, merge, put

SHIPPED = Path(__file__).parents[1] / "thresholds"
"""The threshold files that come with preflight."""


@dataclass(frozen=True)
class Request:
    """What options and environment ask for; `*_from` say which of the two, for the report."""

    thresholds: str | None = None
    workload: str | None = None
    gpu: str | None = None
    set_environment: Sequence[str] = ()
    set_options: Sequence[str] = ()
    deadline_s: float | None = None
    thresholds_from: str = "--thresholds"
    workload_from: str = "--workload"
    gpu_from: str = "--gpu"
    deadline_from: str = "--deadline"


@dataclass(frozen=True)
class Settings:
    """Everything a run goes by."""

    layers: tuple[str, ...]
    values: Mapping[str, Setting]
    run: RunSection
    expect: ExpectSection
    sample: Sample
    loader: Loader
    stats: Stats
    consumer: Consumer
    gpu: str
    workload: str
    limits: Mapping[str, Limits]


@dataclass(frozen=True)
class Shipped:
    """A threshold file that comes with preflight."""

    kind: Kind
    name: str
    description: str


@dataclass(frozen=True)
class _Choice:
    """Which gpu or workload layer was asked for, where, and what a path in it is relative to."""

    value: Value
    beside: Path

    def layers(self, kind: Kind, shipped: Path, gpu_name: str | None = None) -> list[Layer]:
        if self.value.value == "none":
            return []
        if kind == "gpu" and self.value.value == "auto":
            # Until the inventory has given a name no gpu layer applies.
            found = match_gpu(gpu_name, shipped_layers("gpu", shipped)) if gpu_name else None
            return chain(found, shipped) if found else []
        name, place = str(self.value.value), self.value.place
        return chain(find(name, (kind,), place, self.beside, shipped), shipped)


def resolve(
    request: Request,
    checks: Checks,
    shipped: Path,
    gpu_name: str | None = None,
    *,
    only_used: bool = False,
) -> Settings:
    """Merge and validate. Raises SettingsError, whose text begins with file and line or option.

    `gpu_name` is the NVML name that all GPUs of this node have: `gpu: auto` goes by it. Without
    one, every file that could be used is validated too, before anything is measured; `only_used`
    leaves that out, for callers that measure nothing.
    """
    name = request.thresholds or "default"
    top = find(name, ("base", "site"), request.thresholds_from, Path(), shipped)
    settings = _resolve(top, request, checks, shipped, gpu_name)
    if settings.gpu == "auto" and gpu_name is None and not only_used:
        _validate_shipped(checks, shipped)
    return settings


def validate_file(path: Path, checks: Checks, shipped: Path) -> None:
    """Check one threshold file of any kind with all that it extends. Raises SettingsError."""
    layer = read(path, str(path))
    if layer.kind in ("base", "site"):
        if _resolve(layer, Request(), checks, shipped).gpu == "auto":
            _validate_shipped(checks, shipped)
    else:
        _validate_layers(chain(layer, shipped), checks)


def describe(settings: Settings) -> list[tuple[str, Any, str, str | None]]:
    """Every effective value as (key, value, from, source)."""
    return [(key, s.value, s.from_, s.source) for key, s in settings.values.items()]


def list_shipped(shipped: Path) -> list[Shipped]:
    """The files that come with preflight, by kind. Raises SettingsError."""
    return [
        Shipped(kind, layer.path.stem, layer.description or "")
        for kind in KINDS
        if kind != "site"
        for layer in shipped_layers(kind, shipped)
    ]


def _resolve(
    top: Layer, request: Request, checks: Checks, shipped: Path, gpu_name: str | None = None
) -> Settings:
    below = chain(top, shipped)
    _validate_layers(below, checks)
    gpu = _choice("gpu", request.gpu, request.gpu_from, below)
    workload = _choice("workload", request.workload, request.workload_from, below)
    chosen = [*gpu.layers("gpu", shipped, gpu_name), *workload.layers("workload", shipped)]
    _validate_layers(chosen, checks)
    layers = [
        *(layer for layer in below if layer.kind == "base"),
        *chosen,
        *(layer for layer in below if layer.kind == "site"),
    ]
    sets = [
        _set(item, origin)
        for origin, items in (
            (SET_ENVIRONMENT, request.set_environment),
            (SET_OPTION, request.set_options),
        )
        for item in items
    ]
    for tree in sets:
        validate(tree, "site", checks)
    options = [put(["gpu"], gpu.value), put(["workload"], workload.value)]
    if request.deadline_s is not None:
        deadline = Value(request.deadline_s, request.deadline_from)
        options.append(put(["run", "deadline_s"], deadline))
    trees = [layer.tree for layer in layers] + sets + options
    merged = reduce(merge, trees, Branch({}, ""))
    kept = {key for tree in (*(layer.tree for layer in below), *sets) for key in tree.children}
    # A gpu file says how well a check has to do, not that there is one: without limits of its own
    # the check stays unknown here.
    children = {k: node for k, node in merged.children.items() if k not in checks or k in kept}
    # The place of a section that is missing altogether: the file that was asked for.
    merged = Branch(children, f"{top.name}:1")
    return _settings(merged, layers, checks, shipped)


def _settings(merged: Branch, layers: Sequence[Layer], checks: Checks, shipped: Path) -> Settings:
    run = build(merged, "run", RunSection)
    _check_ids(run, merged, checks)
    consumer = build(merged, "consumer", Consumer)
    tree, demand_from = fill_demand(merged, checks)
    values = {
        key: Setting(value=leaf.value, from_=leaf.place, source=leaf.source)
        for key, leaf in flatten(tree)
    }
    ours = {layer.name for layer in layers if shipped in layer.path.parents}
    return Settings(
        layers=tuple(layer.name for layer in layers),
        values=values,
        run=run,
        expect=build(tree, "expect", ExpectSection),
        sample=build(tree, "sample", Sample),
        loader=build(tree, "loader", Loader),
        stats=build(tree, "stats", Stats),
        consumer=consumer,
        gpu=str(values["gpu"].value),
        workload=str(values["workload"].value),
        limits={
            id: with_origins(build(merge(tree, demand_from), id, limits), id, values, ours)
            for id, limits in checks.items()
            if id in tree.children
        },
    )


def _validate_layers(layers: Sequence[Layer], checks: Checks) -> None:
    for layer in layers:
        validate(layer.tree, layer.kind, checks)


def _validate_shipped(checks: Checks, shipped: Path) -> None:
    for kind in ("gpu", "workload"):
        _validate_layers(shipped_layers(kind, shipped), checks)


def _choice(key: str, asked: str | None, asked_from: str, layers: Sequence[Layer]) -> _Choice:
    if asked is not None:
        return _Choice(Value(asked, asked_from), Path())
    for layer in reversed(layers):
        node = layer.tree.children.get(key)
        if isinstance(node, Value) and isinstance(node.value, str):
            return _Choice(node, layer.path.parent)
        if node is not None:
            break
    words = "auto, none or the name of a gpu file" if key == "gpu" else "none or a workload's name"
    raise SettingsError(f"{layers[-1].name}:1", f"{key} is missing: write `{key}:` with {words}")


def _set(item: str, origin: str) -> Branch:
    key, equals, text = item.partition("=")
    path = key.split(".")
    if not equals or len(path) < 2 or not all(path):
        raise SettingsError(
            origin, f"{item!r}: write SECTION.KEY=VALUE, for example loader.num_workers=8"
        )
    return put(path, parse_value(text, origin, key))


def _check_ids(run: RunSection, tree: Branch, checks: Checks) -> None:
    place = dict(flatten(tree))["run.checks"].place
    for number, id in enumerate(run.checks):
        if id not in checks:
            raise SettingsError(place, f"run.checks: unknown check {id}.{did_you_mean(id, checks)}")
        if id in run.checks[:number]:
            raise SettingsError(place, f"run.checks: {id} is listed twice")
        if id not in tree.children:
            raise SettingsError(
                place,
                f"run.checks: {id} is listed, but there is no section {id} with its limits:"
                " add the section, or take it off the list",
            )
