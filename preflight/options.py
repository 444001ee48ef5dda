"""The options of the command line: names, variables, help, and how their text becomes values.

Every option of `run` has an environment variable; a flag beats it, and it beats the files.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from preflight.settings import Request

PREFIX = "PREFLIGHT_"
SET_VARIABLE = "PREFLIGHT_SET"
FORMATS = ("table", "json", "junit", "markdown")
EXIT_ON = ("any", "node")

# PREFLIGHT_SET is a layer of its own under --set; the CPU request is a fact of the node.
_VARIABLES = {SET_VARIABLE, "PREFLIGHT_CPU_REQUEST"}


def _option(name: str, help: str, metavar: str | None = None, *more_names: str) -> Any:
    variable = PREFIX + name.lstrip("-").replace("-", "_").upper()
    _VARIABLES.add(variable)
    return typer.Option(name, *more_names, metavar=metavar, envvar=variable, help=help)


Thresholds = Annotated[
    str | None,
    _option(
        "--thresholds",
        "A shipped set (default, cpu, quick) or a YAML file of yours that lies over one.",
        "NAME|FILE",
    ),
]
Workload = Annotated[
    str | None,
    _option(
        "--workload",
        "What the job trains (resnet50, vit_s16, ...): sample, batch and demand follow.",
        "NAME",
    ),
]
Gpu = Annotated[
    str | None,
    _option("--gpu", "Which GPU's demand and floors apply (h100-sxm, ...).", "auto|NAME|none"),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help=(
            "Override one value, e.g. loader.num_workers=8. Repeatable; lies over PREFLIGHT_SET, "
            "which takes a list with commas."
        ),
    ),
]
Data = Annotated[
    str | None, _option("--data", "Folder of images to load; generated ones without it.", "PATH")
]
Dataset = Annotated[
    str | None,
    _option(
        "--dataset",
        "The job's own data: a function that returns a Dataset, an IterableDataset or a "
        "DataLoader. It finds --data in PREFLIGHT_DATA, its rank in RANK and WORLD_SIZE.",
        "MODULE:FACTORY",
    ),
]
Check = Annotated[
    list[str] | None,
    _option(
        "--check", "Run only this check and what it needs. Repeatable, or a list with commas.", "ID"
    ),
]
Skip = Annotated[list[str] | None, _option("--skip", "Leave this check out.", "ID")]
Waive = Annotated[
    list[str] | None,
    _option("--waive", "Turn fails of this check or finding into visible warnings.", "ID"),
]
ReportDir = Annotated[
    str | None,
    _option("--report-dir", "Write preflight.json and preflight.xml (JUnit) here.", "DIR"),
]
Format = Annotated[
    str, _option("--format", "What standard output shows.", "table|json|junit|markdown")
]
Deadline = Annotated[
    str | None, _option("--deadline", "End the whole run after so long, e.g. 120s or 2m.", "TIME")
]
Explain = Annotated[bool, _option("--explain", "Show every finding, passes too.")]
ExitOn = Annotated[
    str,
    _option(
        "--exit-on",
        "node: exit 1 only when a failing finding blames the node itself.",
        "any|node",
    ),
]
ReportOnly = Annotated[
    bool, _option("--report-only", "Exit 0 instead of 1 and 3; the reports still tell.")
]
AllowUndecided = Annotated[bool, _option("--allow-undecided", "Exit 0 instead of 3.")]
Stagger = Annotated[
    str | None,
    _option(
        "--stagger",
        "Wait a random part of this first, so that a fleet does not read all at once.",
        "TIME",
    ),
]
Quiet = Annotated[bool, _option("--quiet", "No progress, and only the verdict's line.", None, "-q")]
NoColor = Annotated[bool, _option("--no-color", "Plain text on a terminal.")]


def listed(items: Iterable[str] | None) -> tuple[str, ...]:
    """Repeated options and lists with commas alike."""
    return tuple(part.strip() for item in items or () for part in item.split(",") if part.strip())


def split_settings(text: str) -> tuple[str, ...]:
    """Split PREFLIGHT_SET at commas, but not within [] or {}: a value may be a list."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())


def seconds(option: str, text: str | None) -> float | None:
    """Seconds of "120s", "2m" or "120". Raises typer.BadParameter for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", text.strip())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(
            f"{text!r}: write seconds or minutes, such as 120s or 2m", param_hint=option
        )
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    """The value, if it is a known one. Raises typer.BadParameter else."""
    if value not in known:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}", param_hint=option)
    return value


def request(
    context: typer.Context,
    thresholds: str | None,
    workload: str | None = None,
    gpu: str | None = None,
    set_: list[str] | None = None,
    deadline: str | None = None,
) -> Request:
    """What settings are resolved from. Raises typer.BadParameter for a deadline that is none."""
    # Not at the top: --help needs the options, not pydantic.
    from preflight.settings import Request

    return Request(
        thresholds=thresholds,
        workload=workload,
        gpu=gpu,
        set_environment=split_settings(os.environ.get(SET_VARIABLE, "")),
        set_options=tuple(set_ or ()),
        deadline_s=seconds("--deadline", deadline),
        thresholds_from=origin(context, "thresholds"),
        workload_from=origin(context, "workload"),
        gpu_from=origin(context, "gpu"),
        deadline_from=origin(context, "deadline"),
    )


def origin(context: typer.Context, parameter: str) -> str:
    """Where an option's value came from: its variable's name, else the flag's."""
    source = context.get_parameter_source(parameter)
    if source is not None and source.name == "ENVIRONMENT":
        return PREFIX + parameter.upper()
    return "--" + parameter.replace("_", "-")


def unknown_variables(environ: Iterable[str]) -> str | None:
    """One warning for all PREFLIGHT_ variables that mean nothing; Kubernetes injects some."""
    unknown = sorted(n for n in environ if n.startswith(PREFIX) and n not in _VARIABLES)
    if not unknown:
        return None
    near = [difflib.get_close_matches(name, _VARIABLES, n=1, cutoff=0.8) for name in unknown]
    hints = [f"{n} (did you mean {m[0]}?)" if m else n for n, m in zip(unknown, near, strict=True)]
    return f"ignored, no such variable: {', '.join(hints)}"
