"""What the sections of a threshold file may hold, and what is said when they hold something else.

Models in, sentences with file and line out. Pure: it reads no file and knows no check by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, RootModel, ValidationError

from preflight.checks.contract import Limits
from preflight.job import Consumer, Loader, Sample, Section, Stats
from preflight.settings.tree import Branch, Node, SettingsError, Value, did_you_mean, plain

Checks = Mapping[str, type[Limits]]


class RunSection(Section):
    """Which checks run, and for how long."""

    checks: tuple[str, ...] = Field(min_length=1, description="ids of the checks that run")
    deadline_s: float = Field(gt=0, description="the whole run ends after so long")
    max_read_gib: float = Field(
        gt=0, description="of the data path, by all checks and ranks of a run together"
    )
    pace_ratio: float = Field(
        gt=1, description="on a network file system loads are held to so many times the demand"
    )
    unknown_gpu: Literal["link-model"] = Field(
        description="a GPU model without a file of its own is judged by the link it sits on"
    )


class ExpectSection(Section):
    """What the node and the start of the run have to offer."""

    data: bool = Field(description="true: a run without --data is refused")
    gpu_sharing: Literal["exclusive", "shared"] = Field(
        description="exclusive: no one else's process may be on the GPUs"
    )


class DemandTable(
    RootModel[dict[str, Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]]]
):
    """Samples/s that one such GPU consumes in training, by the name of the workload."""


class MultiGpuDemandTable(DemandTable):
    """The same for each of several such GPUs in a node that train together."""


SECTIONS: Mapping[str, type[BaseModel]] = {
    "run": RunSection,
    "expect": ExpectSection,
    "sample": Sample,
    "loader": Loader,
    "stats": Stats,
    "consumer": Consumer,
    "demand_samples_per_s": DemandTable,
    "multi_gpu_demand_samples_per_s": MultiGpuDemandTable,
}
CHOICES = ("gpu", "workload")
"""Top-level keys that name another layer."""

DERIVED = (
    "sources", "site_floors", "demand_from", "reference_demand_samples_per_s",
    "multi_gpu_demand_samples_per_s", "multi_gpu_demand_from",
)  # fmt: skip
"""Limits that are filled in when the settings are resolved, never written."""

# A layer that is chosen by name must not choose others, nor decide what runs.
_REFUSED_IN = {
    "gpu": (*CHOICES, "run", "expect"),
    "workload": (
        *CHOICES, "run", "expect", "demand_samples_per_s", "multi_gpu_demand_samples_per_s",
    ),
    "base": (),
    "site": (),
}  # fmt: skip

ModelT = TypeVar("ModelT", bound=BaseModel)


def validate(tree: Branch, kind: str, checks: Checks) -> None:
    """Check one layer by itself; keys may be missing, since it lies on others.

    Raises SettingsError for the first wrong value.
    """
    for key, node in tree.children.items():
        if key in _REFUSED_IN[kind]:
            raise SettingsError(
                node.place, f"{key}: does not belong into a {kind} file; write it in a site file"
            )
        if key in CHOICES:
            if not isinstance(node, Value) or not isinstance(node.value, str | None):
                raise SettingsError(node.place, f"{key}: needs the name of a file, or none")
            continue
        model = SECTIONS.get(key) or checks.get(key)
        if model is None:
            known = [*SECTIONS, *CHOICES, *checks]
            raise SettingsError(
                node.place, f"{key}: unknown section or check.{did_you_mean(key, known)}"
            )
        if isinstance(node, Branch):
            for name in DERIVED:
                if key in checks and name in node.children:
                    place = node.children[name].place
                    raise SettingsError(place, f"{key}.{name}: is worked out, never written")
        elif node.value is None:
            continue
        _fit(node, model, key, partial=True)


def build(tree: Branch, key: str, model: type[ModelT]) -> ModelT:
    """The section `key` of the merged tree as its model. Raises SettingsError."""
    node = tree.children.get(key)
    if node is None:
        raise SettingsError(
            tree.place, f"the section {key} is missing: add it, or extend a base file that has it"
        )
    built = _fit(node, model, key, partial=False)
    assert built is not None
    return built


@dataclass(frozen=True)
class _Problem:
    """One complaint of pydantic, found again in the tree."""

    kind: str
    path: str
    node: Node
    rest: tuple[int | str, ...]
    """The end of pydantic's location, not in the tree: a missing key, an item, a union's member."""
    seen: Any
    context: Mapping[str, Any]
    message: str

    def item(self) -> str:
        numbers = [part for part in self.rest if isinstance(part, int)]
        return f"item {numbers[0] + 1} " if numbers else ""


def _fit(node: Node, model: type[ModelT], name: str, *, partial: bool) -> ModelT | None:
    # As JSON, because a file knows lists where models have tuples; strictness stays.
    try:
        return model.model_validate_json(json.dumps(plain(node)))
    except ValidationError as error:
        problems = [_located(dict(details), node, name) for details in error.errors()]
    if partial:
        problems = [problem for problem in problems if not _waits_for_merge(problem)]
    if not problems:
        return None
    first = problems[0]
    together = [problem for problem in problems if problem.path == first.path]
    raise SettingsError(first.node.place, f"{first.path}: {_sentence(together, model)}")


def _waits_for_merge(problem: _Problem) -> bool:
    removed = isinstance(problem.node, Value) and problem.node.value is None
    return problem.kind == "missing" or (removed and problem.kind != "extra_forbidden")


def _located(details: dict[str, Any], node: Node, name: str) -> _Problem:
    rest = list(details["loc"])
    path = name
    while rest and isinstance(node, Branch) and rest[0] in node.children:
        node = node.children[rest[0]]
        path = f"{path}.{rest.pop(0)}"
    return _Problem(
        kind=details["type"], path=path, node=node, rest=tuple(rest), seen=details["input"],
        context=details.get("ctx", {}), message=details["msg"],
    )  # fmt: skip


_WANTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
}
_BOUNDS = {
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "too_short": "needs at least {min_length} items",
    "too_long": "takes at most {max_length} items",
    "finite_number": "must be a finite number",
    "value_error": "{error}",
}


def _sentence(problems: list[_Problem], model: type[BaseModel]) -> str:
    """What is wrong at one place; several problems are the members of a union."""
    first = problems[0]
    if first.kind == "extra_forbidden":
        keys = _keys(model, first.path.split(".")[1:-1])
        return f"unknown key.{did_you_mean(first.path.rpartition('.')[2], keys)}"
    if first.kind == "missing":
        return f"{first.rest[-1]} is missing: add it, or extend a base file that has it"
    if first.kind == "value_error":  # a model's own sentence
        return first.message.removeprefix("Value error, ")
    bounds = [
        _BOUNDS[problem.kind].format(**problem.context)
        for problem in problems
        if problem.kind in _BOUNDS
    ]
    wanted = " or ".join(dict.fromkeys(_wanted(p) for p in problems if p.kind not in _BOUNDS))
    if bounds:
        return f"{first.item()}{bounds[0]}{f', or {wanted}' if wanted else ''}{_got(first)}"
    return f"{first.item()}needs {wanted}{_got(first)}{_hint(first, wanted)}"


def _wanted(problem: _Problem) -> str:
    if problem.kind == "literal_error":
        return str(problem.context["expected"]).replace("'", "")
    return _WANTED.get(problem.kind, problem.message)


def _got(problem: _Problem) -> str:
    seen = problem.seen
    if isinstance(seen, dict):
        return ", got a mapping"
    shown = json.dumps(seen, ensure_ascii=False)
    return f", got {shown if len(shown) <= 40 else shown[:37] + '...'}"


_WITH_UNIT = re.compile(r"\s*([-+]?[0-9][0-9.]*)\s*[A-Za-z%µ][A-Za-z/%]*\s*")
_QUOTED = re.compile(r"\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*")


def _hint(problem: _Problem, wanted: str) -> str:
    if not isinstance(problem.seen, str) or "number" not in wanted:
        return ""
    if unit := _WITH_UNIT.fullmatch(problem.seen):
        return f": the unit stands in the key's name, write {unit[1]}"
    return ": write it without quotes" if _QUOTED.fullmatch(problem.seen) else ""


def _keys(model: type[BaseModel], path: list[str]) -> list[str]:
    """The keys that the (nested) model at `path` has; none when they are free."""
    for name in path:
        field = model.model_fields.get(name)
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return [name for name in model.model_fields if name not in DERIVED]
