"""Limits that nobody writes: worked out from other values and from where values came from."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preflight.checks.contract import DemandLimits, Limits
from preflight.model import Setting
from preflight.settings.sections import Checks
from preflight.settings.tree import Branch, Value, flatten, merge, put

SET_ENVIRONMENT = "PREFLIGHT_SET"
SET_OPTION = "--set"

REFERENCE_WORKLOAD = "resnet50"
"""The reference image sample is this workload's: what an unnamed one is held against."""

JOB_DEMAND = "dataloader"
"""The section whose stated demand is the job's: sections that state none of their own take it."""

_ALONE = "demand_samples_per_s"
_TOGETHER = "multi_gpu_demand_samples_per_s"
_RATIO = "consumer.multi_gpu_demand_ratio"


@dataclass(frozen=True)
class _Figures:
    """What the GPU layer has for the workload: samples/s of one GPU, alone and among others."""

    alone: Value
    together: Value
    together_from: str


def fill_demand(tree: Branch, checks: Checks) -> tuple[Branch, Branch]:
    """The tree with the demand that the GPU layer knows, and where each check's demand is from.

    Only sections that are DemandLimits take part. What is written (file or --set) stands; else the
    table's figures for the named workload are filled in; with none named, the reference workload's
    figure becomes `reference_demand_samples_per_s`. How many ranks train is not known here.
    """
    named = str(dict(flatten(tree))["workload"].value)
    figures = _figures(tree, REFERENCE_WORKLOAD if named == "none" else Path(named).stem)
    key = _ALONE if named != "none" else f"reference_{_ALONE}"
    sections = {
        id: section
        for id, limits in checks.items()
        if issubclass(limits, DemandLimits) and isinstance(section := tree.children.get(id), Branch)
    }
    job = _stated(sections[JOB_DEMAND]) if JOB_DEMAND in sections else None
    words = Branch({}, tree.place)
    for id, section in sections.items():
        stated = _stated(section)
        if stated is None and job is not None:
            stated = Value(job.value, f"{job.place}: {JOB_DEMAND}.{_ALONE}", job.source)
            tree = merge(tree, put([id, _ALONE], stated))
        if stated is not None:
            by_option = stated.place.partition(":")[0] in (SET_ENVIRONMENT, SET_OPTION)
            origin = Value("set" if by_option else "site", section.place)
            words = merge(words, put([id, "demand_from"], origin))
        elif figures is not None:
            tree = merge(tree, put([id, key], figures.alone))
            tree = merge(tree, put([id, _TOGETHER], figures.together))
            together_from = Value(figures.together_from, section.place)
            words = merge(words, put([id, "multi_gpu_demand_from"], together_from))
            if named != "none":
                words = merge(words, put([id, "demand_from"], Value("gpu table", section.place)))
    return tree, words


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


def _stated(section: Branch) -> Value | None:
    node = section.children.get(_ALONE)
    return node if isinstance(node, Value) else None


def _figures(tree: Branch, workload: str) -> _Figures | None:
    """The figures of one workload; those of several GPUs by the ratio where no table has them."""
    alone, together = _figure(tree, _ALONE, workload), _figure(tree, _TOGETHER, workload)
    if alone is None:
        return None
    taken = float(alone.value)  # type: ignore[arg-type]
    # More than one GPU takes alone: the figure for one was replaced, and this one is not its pair.
    if together is not None and float(together.value) <= taken:  # type: ignore[arg-type]
        return _Figures(alone, together, "gpu table, multi-GPU")
    ratio = float(dict(flatten(tree))[_RATIO].value)  # type: ignore[arg-type]
    scaled = Value(round(taken * ratio, 6), f"{alone.place} x {_RATIO}", alone.source)
    return _Figures(alone, scaled, f"gpu table x {ratio:g}")


def _figure(tree: Branch, table: str, workload: str) -> Value | None:
    figures = tree.children.get(table)
    figure = figures.children.get(workload) if isinstance(figures, Branch) else None
    if not isinstance(figure, Value):
        return None
    return Value(figure.value, f"{figure.place}: {table}.{workload}", figure.source)
