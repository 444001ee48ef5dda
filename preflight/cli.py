"""The command line: options in, pages and exit code out. The only file that prints or exits.

Every option of `run` has an environment variable; a flag beats it, and it beats the files.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preflight import __version__, exit_code

if TYPE_CHECKING:
    from preflight.isolate import Stop
    from preflight.model import Report
    from preflight.settings import Request

FORMATS = ("table", "json", "junit", "markdown")
_PREFIX = "PREFLIGHT_"
# Read by the node's facts and by settings, not by an option.
_OTHER_VARIABLES = ("PREFLIGHT_CPU_REQUEST", "PREFLIGHT_SET")

app = typer.Typer(
    name="preflight",
    help=(
        "Can this node keep its GPU fed? Run it in front of a training job: it measures the job's "
        "own DataLoader and what stands in its way, says which link is too slow and what to "
        "change, and exits 0 (pass), 1 (fail), 2 (wrong usage) or 3 (undecided)."
    ),
    epilog="Without a command, `run` is meant: preflight --data /data --workload resnet50",
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
thresholds_app = typer.Typer(
    help="List, show and check threshold files.", rich_markup_mode=None, no_args_is_help=True
)
app.add_typer(thresholds_app, name="thresholds")

COMMANDS = ("run", "checks", "explain", "info", "thresholds", "report")


def run_command(arguments: list[str]) -> int:
    """Parse, run, print; returns the exit code. Errors of use are one or two lines and a 2."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _OWN_FLAGS):
        arguments = ["run", *arguments]
    try:
        code = app(arguments, prog_name="preflight", standalone_mode=False)
    except typer.Exit as ended:
        return ended.exit_code
    except typer.Abort:
        return 130
    except OSError as error:
        if error.filename is not None:  # not standard output's: ours to explain
            raise
        _complain(f"standard output is lost ({error.strerror}); nothing is decided by that")
        return exit_code.UNDECIDED
    except Exception as error:
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        return _wrong_usage(message(), arguments)
    return int(code or 0)


_OWN_FLAGS = ("--help", "-h", "--version")


def _wrong_usage(text: str, arguments: list[str]) -> int:
    from preflight.last_words import leave_report

    hint = f"try: preflight {arguments[0]} --help" if arguments[0] in COMMANDS else ""
    _complain(f"{text}\n{hint}" if hint else text)
    if arguments[0] == "run":
        leave_report(text, arguments, os.environ, exit_code.USAGE)
    return exit_code.USAGE


def _version(wanted: bool) -> None:
    if wanted:
        _print(f"preflight {__version__}\n")
        raise typer.Exit(0)


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# -- options shared by commands ---------------------------------------------------------------

Thresholds = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE", envvar="PREFLIGHT_THRESHOLDS",
        help="A shipped set (default, cpu, quick) or a YAML file of yours that lies over one.",
    ),
]  # fmt: skip
Workload = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", envvar="PREFLIGHT_WORKLOAD",
        help="What the job trains (resnet50, vit_s16, ...): sample, batch and demand follow.",
    ),
]  # fmt: skip
Gpu = Annotated[
    str | None,
    typer.Option(
        metavar="auto|NAME|none", envvar="PREFLIGHT_GPU",
        help="Which GPU's demand and floors apply (h100-sxm, ...).",
    ),
]  # fmt: skip
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE",
        help="Override one value, e.g. loader.num_workers=8. Repeatable; lies over PREFLIGHT_SET.",
    ),
]  # fmt: skip
NoColor = Annotated[
    bool, typer.Option("--no-color", envvar="PREFLIGHT_NO_COLOR", help="Plain text on a terminal.")
]


@app.command()
def run(
    thresholds: Thresholds = None,
    workload: Workload = None,
    gpu: Gpu = None,
    set_: Set = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            envvar="PREFLIGHT_DATA",
            help="Folder of images to load; generated ones without it.",
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            envvar="PREFLIGHT_CHECK",
            help="Run only this check and what it needs. Repeatable, or a list with commas.",
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", envvar="PREFLIGHT_SKIP", help="Leave this check out."),
    ] = None,
    waive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            envvar="PREFLIGHT_WAIVE",
            help="Turn fails of this check or finding into visible warnings.",
        ),
    ] = None,
    report_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            envvar="PREFLIGHT_REPORT_DIR",
            help="Write preflight.json and preflight.xml (JUnit) here.",
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            metavar="table|json|junit|markdown",
            envvar="PREFLIGHT_FORMAT",
            help="What standard output shows.",
        ),
    ] = "table",
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            envvar="PREFLIGHT_DEADLINE",
            help="End the whole run after so long, e.g. 120s or 2m.",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", envvar="PREFLIGHT_EXPLAIN", help="Show every finding, passes too."
        ),
    ] = False,
    exit_on: Annotated[
        str,
        typer.Option(
            metavar="any|node",
            envvar="PREFLIGHT_EXIT_ON",
            help="node: exit 1 only when a failing finding blames the node itself.",
        ),
    ] = "any",
    report_only: Annotated[
        bool,
        typer.Option(
            "--report-only",
            envvar="PREFLIGHT_REPORT_ONLY",
            help="Exit 0 instead of 1 and 3; reports still tell.",
        ),
    ] = False,
    allow_undecided: Annotated[
        bool,
        typer.Option(
            "--allow-undecided", envvar="PREFLIGHT_ALLOW_UNDECIDED", help="Exit 0 instead of 3."
        ),
    ] = False,
    stagger: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            envvar="PREFLIGHT_STAGGER",
            help="Wait a random part of this first, so that a fleet does not read all at once.",
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", envvar="PREFLIGHT_QUIET", help="No progress; only the verdict's line."
        ),
    ] = False,
    no_color: NoColor = False,
    context: typer.Context = None,  # type: ignore[assignment]
) -> int:
    """Run the gate. This is what `preflight` does without a command.

    Exit codes: 0 pass (warnings allowed); 1 a limit was missed; 2 options or threshold files are
    wrong, nothing was measured; 3 undecided: something required could not be measured; 130 and
    143 interrupted, after the reports were written.
    """
    from preflight.gate import Gate, Options, Talk
    from preflight.isolate import Stop
    from preflight.progress import ProgressLines

    _one_of("--format", format, FORMATS)
    _one_of("--exit-on", exit_on, ("any", "node"))
    options = Options(
        request=_request(thresholds, workload, gpu, set_, context, deadline),
        check=_listed(check), skip=_listed(skip), waive=_listed(waive),
        data=data, report_dir=report_dir,
        report_dir_required=_origin(context, "report_dir", "flag") == "flag",
        exit_on="node" if exit_on == "node" else "any", report_only=report_only,
        allow_undecided=allow_undecided, stagger_s=_seconds("--stagger", stagger) or 0.0,
        explain=explain,
    )  # fmt: skip
    stop = Stop()
    _stop_on_signals(stop)
    lines = ProgressLines(sys.stderr, quiet=quiet)
    warning = unknown_variables(os.environ)
    if warning and not quiet:
        lines.note(warning)
    talk = Talk(note=lines.note, progress=lines.progress)
    report = Gate(options, os.environ, stop, talk, (warning,) if warning else ()).run()
    lines.clear()
    _show_verdict(report, format, quiet=quiet, color=_colored(no_color), explain=explain)
    return report.exit_code


@app.command()
def checks(thresholds: Thresholds = None, set_: Set = None) -> int:
    """List the checks, whether the thresholds run them, and whether they apply to this machine."""
    from preflight import pages

    return _page(lambda: pages.checks(_request(thresholds, None, None, set_), os.environ))


@app.command()
def explain(
    check: Annotated[str, typer.Argument(metavar="CHECK", help="See `preflight checks`.")],
    thresholds: Thresholds = None,
    workload: Workload = None,
    gpu: Gpu = None,
    set_: Set = None,
) -> int:
    """What a check measures, its limits and where they come from, its findings and remedies."""
    from preflight import pages

    return _page(lambda: pages.explain(check, _request(thresholds, workload, gpu, set_)))


@app.command()
def info(
    format: Annotated[str, typer.Option(metavar="table|json", help="How to print it.")] = "table",
) -> int:
    """Facts of this node: CPU, memory, /dev/shm, limits. No verdict."""
    from preflight import pages

    _one_of("--format", format, ("table", "json"))
    return _page(lambda: pages.info(os.environ, as_json=format == "json"))


@app.command()
def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A saved preflight.json.")],
    format: Annotated[
        str, typer.Option(metavar="table|json|junit|markdown", help="What to draw from it.")
    ] = "table",
    explain: Annotated[bool, typer.Option("--explain", help="Show every finding.")] = False,
    no_color: NoColor = False,
) -> int:
    """Draw a saved report in any format. Exits 0 whatever the report says."""
    from preflight import pages

    _one_of("--format", format, FORMATS)
    options = _table_options(_colored(no_color), explain) if format == "table" else {}
    return _page(lambda: pages.saved_report(file, format, options))


@thresholds_app.command("list")
def thresholds_list() -> int:
    """The threshold sets, GPU and workload files that come with preflight."""
    from preflight import pages

    return _page(pages.thresholds_list)


@thresholds_app.command("show")
def thresholds_show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE")] = "default",
    effective: Annotated[
        bool, typer.Option("--effective", help="All merged values, each with where it is from.")
    ] = False,
    workload: Workload = None,
    gpu: Gpu = None,
    set_: Set = None,
) -> int:
    """Print a threshold file, or with --effective everything that would apply."""
    from preflight import pages

    request = _request(name, workload, gpu, set_)
    return _page(lambda: pages.thresholds_show(request, effective=effective))


@thresholds_app.command("validate")
def thresholds_validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
) -> int:
    """Check threshold files; the first thing wrong in each, with file and line. Exits 2 if any."""
    from preflight import pages

    good, wrong = pages.thresholds_validate(files)
    _print("".join(f"{line}\n" for line in good))
    for line in wrong:
        _complain(line)
    return exit_code.USAGE if wrong else exit_code.PASS


@thresholds_app.command("schema")
def thresholds_schema() -> int:
    """The JSON Schema of a threshold file, for editors."""
    from preflight import pages

    return _page(pages.thresholds_schema)


# -- from options to values -------------------------------------------------------------------


def _request(
    thresholds: str | None,
    workload: str | None,
    gpu: str | None,
    set_: list[str] | None,
    context: typer.Context | None = None,
    deadline: str | None = None,
) -> Request:
    from preflight.settings import Request

    return Request(
        thresholds=thresholds, workload=workload, gpu=gpu,
        set_environment=split_outside_brackets(os.environ.get("PREFLIGHT_SET", "")),
        set_options=tuple(set_ or ()), deadline_s=_seconds("--deadline", deadline),
        thresholds_from=_origin(context, "thresholds", "--thresholds"),
        workload_from=_origin(context, "workload", "--workload"),
        gpu_from=_origin(context, "gpu", "--gpu"),
        deadline_from=_origin(context, "deadline", "--deadline"),
    )  # fmt: skip


def _origin(context: typer.Context | None, parameter: str, flag: str) -> str:
    """The variable's name where an option's value came from the environment, else `flag`."""
    source = context.get_parameter_source(parameter) if context is not None else None
    environment = source is not None and source.name == "ENVIRONMENT"
    return f"{_PREFIX}{parameter.upper()}" if environment else flag


def _listed(items: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for item in items or () for part in item.split(",") if part.strip())


def split_outside_brackets(text: str) -> tuple[str, ...]:
    """Split at commas, but not within [] or {}: PREFLIGHT_SET may hold lists."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", text.strip())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r}: write seconds or minutes, such as 120s or 2m",
                                 param_hint=option)  # fmt: skip
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}", param_hint=option)


def unknown_variables(environ: Iterable[str]) -> str | None:
    """One warning for all PREFLIGHT_ variables that mean nothing; Kubernetes injects some."""
    known = {name for name in _option_variables()} | set(_OTHER_VARIABLES)
    unknown = sorted(n for n in environ if n.startswith(_PREFIX) and n not in known)
    if not unknown:
        return None
    near = [difflib.get_close_matches(name, known, n=1, cutoff=0.8) for name in unknown]
    hints = [f"{n} (did you mean {m[0]}?)" if m else n for n, m in zip(unknown, near, strict=True)]
    return f"ignored, no such variable: {', '.join(hints)}"


def _option_variables() -> Iterable[str]:
    for parameter in typer.main.get_command(app).commands["run"].params:  # type: ignore[attr-defined]
        variable = parameter.envvar
        if isinstance(variable, str):
            yield variable


def _stop_on_signals(stop: Stop) -> None:
    """From here on a signal ends the measurement, writes the reports, and gives 130 or 143."""

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal is None:
            stop.signal = signal.Signals(number)

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is not signal.SIG_IGN:
            signal.signal(name, note)


# -- printing ---------------------------------------------------------------------------------


def _page(make: Any) -> int:
    """Print what `make` returns; wrong input is exit 2 with its own words."""
    from preflight.plan import UsageError
    from preflight.tree import SettingsError

    try:
        text = make()
    except (UsageError, SettingsError) as error:
        _complain(str(error))
        return exit_code.USAGE
    _print(text)
    return exit_code.PASS


def _show_verdict(report: Report, format: str, *, quiet: bool, color: bool, explain: bool) -> None:
    """Print the verdict. A lost standard output is said on standard error; the code stays."""
    from preflight.report import FORMATS as RENDER
    from preflight.report.headline import headline

    line = f"{headline(report)}\n"
    wrong_usage = report.exit_code == exit_code.USAGE
    if wrong_usage:
        _complain(report.reason or "")
    try:
        if format == "table" and (quiet or wrong_usage):
            _print("" if wrong_usage else line)
        elif format == "table":
            _print(RENDER["table"](report, **_table_options(color, explain)).decode())
        else:
            _print(RENDER[format](report).decode())
    except OSError as error:
        _complain(f"standard output is lost ({error.strerror}): {line}")
    except Exception as error:  # a fault in a page must not cost the verdict
        _complain(f"--format {format} failed ({type(error).__name__}: {error})")
        _complain(line)


def _table_options(color: bool, explain: bool) -> dict[str, Any]:
    import shutil

    return {
        "width": shutil.get_terminal_size((100, 24)).columns,
        "color": color,
        "explain": explain,
    }


def _colored(no_color: bool) -> bool:
    plain = no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def _print(text: str) -> None:
    """Write to standard output, all of it, now. Raises OSError when it is closed or full."""
    sys.stdout.buffer.write(text.encode(errors="replace"))
    sys.stdout.flush()


def _complain(text: str) -> None:
    try:
        for line in text.splitlines():
            sys.stderr.write(f"preflight: {line}\n")
        sys.stderr.flush()
    except OSError:
        pass  # nowhere left to say it; the exit code still does
