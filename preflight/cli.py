"""The command line: options in, pages and exit code out."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from preflight import __version__, console, exit_code, options
from preflight.thresholds_cli import thresholds_app

if TYPE_CHECKING:
    from preflight.isolate import Stop
    from preflight.launch import Launch


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
app.add_typer(thresholds_app, name="thresholds")

COMMANDS = ("run", "checks", "explain", "info", "thresholds", "report")


def run_command(arguments: list[str], launch: Launch | None = None) -> int:
    """Parse, run, print; returns the exit code. Errors of use are one or two lines and a 2.

    `launch` is the command behind `--`, which the caller starts where the gate lets it.
    """
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _OWN_FLAGS):
        arguments = ["run", *arguments]
    try:
        code = app(arguments, prog_name="preflight", standalone_mode=False, obj=launch)
    except typer.Exit as ended:
        return ended.exit_code
    except typer.Abort:
        return 130
    except (OSError, SystemExit):  # help or version into a closed or full standard output
        console.complain("standard output is lost; nothing is decided by that")
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
    console.complain(f"{text}\n{hint}" if hint else text)
    # A misspelt `run` is none of ours, but whoever meant a gate must not find an older pass.
    leave_report(text, arguments, os.environ, exit_code.USAGE)
    return exit_code.USAGE


def _version(wanted: bool) -> None:
    if wanted:
        console.write(f"preflight {__version__}\n")
        raise typer.Exit(0)


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(options_metavar="[OPTIONS] [-- CMD...]")
def run(
    context: typer.Context,
    thresholds: options.Thresholds = None,
    workload: options.Workload = None,
    gpu: options.Gpu = None,
    data: options.Data = None,
    dataset: options.Dataset = None,
    set_: options.Set = None,
    check: options.Check = None,
    skip: options.Skip = None,
    waive: options.Waive = None,
    report_dir: options.ReportDir = None,
    format: options.Format = "table",
    deadline: options.Deadline = None,
    explain: options.Explain = False,
    exit_on: options.ExitOn = "any",
    report_only: options.ReportOnly = False,
    allow_undecided: options.AllowUndecided = False,
    stagger: options.Stagger = None,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Run the gate. This is what `preflight` does without a command.

    Exit codes: 0 pass (warnings allowed); 1 a limit was missed; 2 options or threshold files are
    wrong, nothing was measured; 3 undecided: something required could not be measured; 130 and
    143 interrupted, after the reports were written.

    With `-- CMD...` a 0 starts CMD in this process's place, with its streams, signals and exit
    code its own; the gate's 1, 2 and 3 become 91, 92 and 93. Among several local ranks (torchrun's
    LOCAL_RANK, Slurm's SLURM_LOCALID) only rank 0 measures, and all do as it says. Write `run`:
    torchrun takes a `--` right behind `preflight` for its own.
    """
    from preflight.gate import Gate
    from preflight.isolate import Stop
    from preflight.progress import ProgressLines
    from preflight.run_options import Options, Talk

    options.one_of("--format", format, options.FORMATS)
    options.one_of("--exit-on", exit_on, options.EXIT_ON)
    if report_dir == "":
        raise typer.BadParameter("name a folder", param_hint="--report-dir")
    launch: Launch | None = context.obj
    if launch is not None and not any(launch.command[:1]):
        raise typer.BadParameter("name the command to start on a pass behind it", param_hint="--")
    asked = Options(
        request=options.request(context, thresholds, workload, gpu, set_, deadline),
        check=options.listed(check),
        skip=options.listed(skip),
        waive=options.listed(waive),
        data=data,
        dataset=dataset,
        report_dir=report_dir,
        report_dir_required=options.origin(context, "report_dir").startswith("--"),
        exit_on="node" if exit_on == "node" else "any",
        report_only=report_only,
        allow_undecided=allow_undecided,
        stagger_s=options.seconds("--stagger", stagger) or 0.0,
        explain=explain,
    )
    stop = Stop()
    _stop_on_signals(stop)
    lines = ProgressLines(sys.stderr, quiet=quiet)
    warning = options.unknown_variables(os.environ)
    if warning and not quiet:
        lines.note(warning)
    talk = Talk(note=lines.note, progress=lines.progress)
    # Before a command a pass is no last word: it would stand beside whatever ends it hours later.
    report = Gate(
        asked, os.environ, stop, talk, (warning,) if warning else (),
        leaves_message=lambda code: launch is None or code != exit_code.PASS,
    ).run()  # fmt: skip
    lines.clear()
    console.show_verdict(
        report, format, quiet=quiet, color=console.colored(no_color), explain=explain
    )
    if launch is not None:
        launch.decided(report.exit_code, quiet=quiet, stopped=lambda: stop.signal)
    return report.exit_code


@app.command()
def checks(
    context: typer.Context, thresholds: options.Thresholds = None, set_: options.Set = None
) -> int:
    """List the checks, whether the thresholds run them, and whether they apply to this machine."""
    from preflight import pages

    return console.page(
        lambda: pages.checks(options.request(context, thresholds, set_=set_), os.environ)
    )


@app.command()
def explain(
    context: typer.Context,
    check: Annotated[str, typer.Argument(metavar="CHECK", help="See `preflight checks`.")],
    thresholds: options.Thresholds = None,
    workload: options.Workload = None,
    gpu: options.Gpu = None,
    set_: options.Set = None,
) -> int:
    """What a check measures, its limits and where they come from, its findings and remedies."""
    from preflight import pages

    return console.page(
        lambda: pages.explain(check, options.request(context, thresholds, workload, gpu, set_))
    )


@app.command()
def info(
    format: Annotated[str, typer.Option(metavar="table|json", help="How to print it.")] = "table",
) -> int:
    """Facts of this node: CPU, memory, /dev/shm, limits, GPUs. No verdict."""
    from preflight import pages

    options.one_of("--format", format, ("table", "json"))
    return console.page(lambda: pages.info(os.environ, as_json=format == "json"))


@app.command()
def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A saved preflight.json.")],
    format: Annotated[
        str, typer.Option(metavar="table|json|junit|markdown", help="What to draw from it.")
    ] = "table",
    explain: Annotated[bool, typer.Option("--explain", help="Show every finding.")] = False,
    no_color: options.NoColor = False,
) -> int:
    """Draw a saved report in any format. Exits 0 whatever the report says."""
    from preflight import pages

    options.one_of("--format", format, options.FORMATS)
    drawing = console.table_options(console.colored(no_color), explain) if format == "table" else {}
    return console.page(lambda: pages.saved_report(file, format, drawing))


def _stop_on_signals(stop: Stop) -> None:
    """From here on a signal ends the measurement, writes the reports, and gives 130 or 143."""

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal is None:
            stop.signal = signal.Signals(number)

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is not signal.SIG_IGN:
            signal.signal(name, note)
