"""The record as JSON: render, parse, and the published schema (preflight.schema.json).

Every key of a record is there; null says "asked, not answered". Only a result's `output` is left
out when there is none: what a passing process printed is not asked for. Inside `facts`, `reading`
and `settings` a key that was not asked is absent. No NaN or Infinity is ever written (they become
null), and a lone surrogate becomes the six characters that name it: many parsers refuse the rest.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from pydantic import ValidationError

from preflight.model import SCHEMA_VERSION, Report
from preflight.report.text import without_surrogates


def render(report: Report) -> bytes:
    """The document, UTF-8, two blanks to a level."""
    document = report.model_dump(by_alias=True)
    for result in document["results"]:
        if result["output"] is None:
            del result["output"]
    text = json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def parse(text: str) -> Report:
    """The report in a document that `render` wrote.

    Raises ValueError, one sentence, if it is something else or of another schema version.
    """
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a preflight report: not JSON ({error})") from None
    if not isinstance(document, dict) or "schema_version" not in document:
        raise ValueError("not a preflight report: it has no schema_version")
    version = document["schema_version"]
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"this report has schema_version {version!r}, this preflight reads {SCHEMA_VERSION!r}: "
            f"use the preflight that wrote it ({document.get('preflight_version', 'unknown')})"
        )
    try:
        return Report.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"not a preflight report: {place}: {first['msg']}") from None


def schema() -> dict[str, Any]:
    """The JSON Schema of the document, as published in preflight.schema.json."""
    schema = Report.model_json_schema(by_alias=True, mode="serialization")
    schema["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    for record in (schema, *schema["$defs"].values()):
        keys = [key for key in record.get("properties", ()) if key != "output"]
        if keys:
            record["required"] = keys
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """The text of preflight.schema.json."""
    return json.dumps(schema(), indent=2) + "\n"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {without_surrogates(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return without_surrogates(str(value))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
