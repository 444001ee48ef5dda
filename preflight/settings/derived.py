"""Limits that nobody writes: worked out from other values and from where values came from."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from preflight.checks.contract import Limits
from preflight.model import Setting
from preflight.settings.sections import Checks
from preflight.settings.tree import Branch, Value, flatten, merge, put

SET_ENVIRONMENT = "PREFLIGHT_SET"
SET_OPTION = "--set"

REFERENCE_WORKLOAD = "resnet50"
"""The reference image sample is this workload's: what an unnamed one is held against."""


def fill_demand(tree: Branch, checks: Checks) -> tuple[Branch, Branch]:
    """The tree with the demand that the GPU layer knows, and where each check's demand is from.

    Only checks whose Limits have the field `demand_samples_per_s` take part. What is written
    (file or --set) stands; else the table's figure for the named workload is filled in; with none
    named, the reference workload's figure becomes `reference_demand_samples_per_s`.
    """
    table = tree.children.get("demand_samples_per_s")
    figures = table.children if isinstance(table, Branch) else {}
    named = str(dict(flatten(tree))["workload"].value)
    workload = REFERENCE_WORKLOAD if named == "none" else Path(named).stem
    figure = figures.get(workload)
    demand_from = Branch({}, tree.place)
    for id, limits in checks.items():
        section = tree.children.get(id)
        if not isinstance(section, Branch) or "demand_samples_per_s" not in limits.model_fields:
            continue
        stated = section.children.get("demand_samples_per_s")
        if isinstance(stated, Value):
            origin = "set" if stated.place in (SET_ENVIRONMENT, SET_OPTION) else "site"
        elif isinstance(figure, Value):
            place = f"{figure.place}: demand_samples_per_s.{workload}"
            key = "demand_samples_per_s" if named != "none" else "reference_demand_samples_per_s"
            tree = merge(tree, put([id, key], Value(figure.value, place, figure.source)))
            if named == "none":
                continue
            origin = "gpu table"
        else:
            continue
        word = Value(origin, section.place)
        demand_from = merge(demand_from, put([id, "demand_from"], word))
    return tree, demand_from


def with_origins(limits: Limits, id: str, values: Mapping[str, Setting], ours: Set[str]) -> Limits:
    """The limits with the sources that the files name, and which floors are not shipped ones."""
    mine = {
        key.removeprefix(f"{id}."): setting
        for key, setting in values.items()
        if key.startswith(f"{id}.")
    }
    sources = {key: setting.source for key, setting in mine.items() if setting.source}
    update: dict[str, Any] = {"sources": sources or None}
    if "site_floors" in type(limits).model_fields:
        update["site_floors"] = tuple(
            key for key, setting in mine.items() if setting.from_.rpartition(":")[0] not in ours
        )
    return limits.model_copy(update=update)
