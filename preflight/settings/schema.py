"""The JSON Schema of a threshold file, for editors and other tools; drawn from the models.

A file is a layer, so no key is required and null removes any. What the schema cannot say (which
kind may hold what, duplicate keys, spelling of numbers) only `settings` enforces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from preflight.settings.layers import KINDS
from preflight.settings.sections import CHOICES, DERIVED, SECTIONS, Checks

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}


def schema(checks: Checks) -> Schema:
    """The JSON Schema (draft 2020-12) of a threshold file with these checks."""
    models: dict[str, type[BaseModel]] = {**SECTIONS, **checks}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "preflight threshold file",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "kind": {"enum": list(KINDS), "description": "site when absent"},
            "extends": {**_TEXT, "description": "a shipped name, a path, or none"},
            "description": _TEXT,
            "match": {"type": "array", "items": _TEXT, "minItems": 1},
            **{key: _layer(_TEXT) for key in CHOICES},
            **{key: _section(model) for key, model in models.items()},
        },
    }


def _section(model: type[BaseModel]) -> Schema:
    full = model.model_json_schema()
    return _layer(_inlined(full, full.get("$defs", {})))


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = definitions[node["$ref"].rpartition("/")[2]]
    return {key: _inlined(value, definitions) for key, value in node.items() if key != "$defs"}


def _layer(part: Schema) -> Schema:
    """The schema of a value in a layer: nothing is required, null removes, numbers have sources."""
    kept = {
        key: value for key, value in part.items() if key not in ("required", "default", "title")
    }
    note = {"description": kept.pop("description")} if "description" in kept else {}
    if kept.get("type") == "object":
        for name in DERIVED:
            kept.get("properties", {}).pop(name, None)
        if "properties" in kept:
            kept["properties"] = {key: _layer(child) for key, child in kept["properties"].items()}
        if isinstance(kept.get("additionalProperties"), dict):
            kept["additionalProperties"] = _layer(kept["additionalProperties"])
        forms = [kept]
    else:
        sourced = {
            "type": "object",
            "properties": {"value": kept, "source": _TEXT},
            "required": ["value"],
            "additionalProperties": False,
        }
        forms = [kept, sourced]
    return {"anyOf": [*forms, {"type": "null"}], **note}
