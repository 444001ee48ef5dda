"""The commands that only look: each makes one page of text. Nothing is measured."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from preflight import checks as all_checks
from preflight.checks.contract import Check
from preflight.facts import Facts
from preflight.machine.facts import gather
from preflight.machine.root import host
from preflight.plan import UsageError, why_not
from preflight.settings import (
    SHIPPED,
    Request,
    Settings,
    describe,
    list_shipped,
    resolve,
    validate_file,
)
from preflight.settings.schema import schema
from preflight.settings.sections import DERIVED
from preflight.settings.strict_yaml import MAX_BYTES
from preflight.settings.tree import SettingsError, did_you_mean

_WIDTH = 96


def checks(request: Request, environ: Mapping[str, str]) -> str:
    """Every check: does the threshold set run it, does it apply here."""
    known = all_checks.discover()
    settings, facts = _resolve(request, known), gather(host(), environ)
    rows = [("CHECK", "RUNS", "APPLIES HERE", "WHAT")]
    for id in (*settings.run.checks, *(id for id in known if id not in settings.run.checks)):
        check = known[id]
        rows.append((id, _runs(id, settings), _applies(check, settings, facts), check.title))
    return _columns(rows)


def explain(id: str, request: Request) -> str:
    """One check: what it is for, its limits with their origin, its findings with remedies."""
    known = all_checks.discover()
    if id not in known:
        raise UsageError(f"there is no check {id}.{did_you_mean(id, known)}")
    check, settings = known[id], _resolve(request, known)
    lines = [f"{id}: {check.title}", "", *_wrapped(check.about), ""]
    if check.needs:
        lines += [f"needs {', '.join(check.needs)}", ""]
    lines.append("limits here")
    rows = [
        (f"  {key}", _value(value), origin + (f" ({source})" if source else ""))
        for key, value, origin, source in describe(settings)
        if key.startswith(f"{id}.")
    ]
    settable = (name for name in check.limits.model_fields if name not in DERIVED)
    told = {row[0].strip().removeprefix(f"{id}.").partition(".")[0] for row in rows}
    rows += [(f"  {id}.{name}", "not set", "") for name in settable if rows and name not in told]
    lines += [_columns(rows).rstrip("\n") or "  none: the thresholds have no such section", ""]
    lines.append("findings, and what to do about a miss")
    lines += [*_told({f"{id}.{name}": remedy for name, remedy in check.findings.items()}), ""]
    if check.causes:
        lines.append(
            "causes of a miss (cause_id in the report), and what helps; the first that holds"
        )
        lines += [*_told(check.causes), ""]
    if check.examples:
        lines += ["as it was seen", "", check.examples.rstrip(), ""]
    return "\n".join(lines)


def info(environ: Mapping[str, str], *, as_json: bool) -> str:
    """The node's facts, its GPUs included; a process of its own asks NVML, which may hang."""
    from preflight.isolate import Stop
    from preflight.prepare import with_gpus

    asked = with_gpus(gather(host(), environ), Stop())
    facts = asked.model_dump(mode="json", by_alias=True)
    if as_json:
        return json.dumps(facts, indent=2) + "\n"
    return _columns([(key, _value(value)) for key, value in _flat(facts)])


def saved_report(file: Path, format: str, options: Mapping[str, Any]) -> str:
    """A saved report in another format."""
    from preflight.report import FORMATS
    from preflight.report.json_report import parse

    try:
        report = parse(file.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None
    return FORMATS[format](report, **options).decode()


def thresholds_list() -> str:
    """What comes with preflight, by kind."""
    rows = [("KIND", "NAME", "WHAT")]
    rows += [(entry.kind, entry.name, entry.description) for entry in list_shipped(SHIPPED)]
    return _columns(rows)


def thresholds_show(request: Request, *, effective: bool) -> str:
    """A file as it is written, or all that applies with it."""
    if effective:
        rows = [("KEY", "VALUE", "FROM", "SOURCE")]
        for key, value, origin, source in describe(_resolve(request, all_checks.discover())):
            rows.append((key, _value(value), origin, source or ""))
        return _columns(rows)
    name = request.thresholds or "default"
    for folder in (SHIPPED, SHIPPED / "gpu", SHIPPED / "workload"):
        if (folder / f"{name}.yaml").is_file():
            return (folder / f"{name}.yaml").read_text(encoding="utf-8")
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        names = [entry.name for entry in list_shipped(SHIPPED)]
        hint = did_you_mean(name, names)
        raise UsageError(f"{name}: {error.strerror}.{hint}") from None


def thresholds_validate(files: Sequence[Path]) -> tuple[list[str], list[str]]:
    """(lines for good files, lines for wrong ones)."""
    known = {id: check.limits for id, check in all_checks.discover().items()}
    good, wrong = [], []
    for file in files:
        try:
            validate_file(file, known, SHIPPED)
            good.append(f"{file}: ok")
        except SettingsError as error:
            wrong.append(str(error))
    return good, wrong


def thresholds_import(file: Path, output: Path | None) -> str:
    """A workload of DLIO or MLPerf Storage as a site file, or where that was written."""
    from preflight.settings.dlio import site_file

    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    text = site_file(data, file.name)
    if output is None:
        return text
    try:
        with output.open("x", encoding="utf-8") as made:
            made.write(text)
    except FileExistsError:
        raise UsageError(f"{output}: exists: remove it, or name another") from None
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}") from None
    return f"{output}: written; preflight run --thresholds {output}\n"


def thresholds_schema() -> str:
    """The JSON Schema of a threshold file."""
    limits = {id: check.limits for id, check in all_checks.discover().items()}
    return json.dumps(schema(limits), indent=2) + "\n"


def _resolve(request: Request, known: Mapping[str, Check[Any, Any]]) -> Settings:
    limits = {id: check.limits for id, check in known.items()}
    return resolve(request, limits, SHIPPED, only_used=True)


def _runs(id: str, settings: Settings) -> str:
    if id not in settings.run.checks:
        return "no"
    return "yes" if settings.limits[id].required else "yes, not required"


def _applies(check: Check[Any, Any], settings: Settings, facts: Facts) -> str:
    if check.id not in settings.limits:
        return "no limits"
    limits, expected = settings.limits[check.id], settings.gpu != "none"
    reason = why_not(check, limits, facts, gpu_expected=expected, no_data=None)
    return f"no: {reason}" if reason else "with --data" if check.data else "yes"


def _flat(tree: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = dict(enumerate(value))
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH)


def _told(texts: Mapping[str, str]) -> Iterable[str]:
    """Names and what is said of each, broken into lines of its column."""
    column = max(map(len, texts), default=0) + 4
    for name, text in texts.items():
        yield from textwrap.wrap(
            text, _WIDTH, initial_indent=f"  {name}".ljust(column), subsequent_indent=" " * column,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Left-aligned columns, two blanks apart; the last one is not padded."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)
