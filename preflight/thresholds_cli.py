"""The commands under `preflight thresholds`: options in, pages and exit code out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from preflight import console, exit_code, options

thresholds_app = typer.Typer(
    help="List, show, check and import threshold files.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@thresholds_app.command("list")
def thresholds_list() -> int:
    """The threshold sets, GPU and workload files that come with preflight."""
    from preflight import pages

    return console.page(pages.thresholds_list)


@thresholds_app.command("show")
def thresholds_show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME|FILE")] = "default",
    effective: Annotated[
        bool, typer.Option("--effective", help="All merged values, each with where it is from.")
    ] = False,
    workload: options.Workload = None,
    gpu: options.Gpu = None,
    set_: options.Set = None,
) -> int:
    """Print a threshold file, or with --effective everything that would apply."""
    from preflight import pages

    request = options.request(context, name, workload, gpu, set_)
    return console.page(lambda: pages.thresholds_show(request, effective=effective))


@thresholds_app.command("validate")
def thresholds_validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
) -> int:
    """Check threshold files; the first thing wrong in each, with file and line. Exits 2 if any."""
    from preflight import pages

    good, wrong = pages.thresholds_validate(files)
    console.write("".join(f"{line}\n" for line in good))
    for line in wrong:
        console.complain(line)
    return exit_code.USAGE if wrong else exit_code.PASS


@thresholds_app.command("import")
def thresholds_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The workload's YAML.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write there what would be printed."),
    ] = None,
) -> int:
    """A workload file of DLIO or MLPerf Storage as a site file: sample, loader and demand.

    The demand is batch_size / computation_time. What has no counterpart is said in comments. A
    file that exists is not written over.
    """
    from preflight import pages

    return console.page(lambda: pages.thresholds_import(file, output))


@thresholds_app.command("schema")
def thresholds_schema() -> int:
    """The JSON Schema of a threshold file, for editors."""
    from preflight import pages

    return console.page(pages.thresholds_schema)
