import re

import pytest
from rich.cells import cell_len

from preflight.outcome import Outcome
from preflight.report.table import render

from .feed_reports import ALL_REPORTS
from .reports import FAILING, MIXED, PASSING, SUPPLY, report, result

ESCAPE = "\x1b"


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", ALL_REPORTS)
def test_no_line_is_wider_than_the_page(name, width):
    lines = render(ALL_REPORTS[name], width=width).decode().split("\n")
    assert max(cell_len(line) for line in lines) <= width
    assert all(line == line.rstrip() for line in lines)


def test_the_verdict_is_the_first_line_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    page = render(FAILING).decode()
    assert page.startswith("FAIL node gpu-b17: dataloader: 812 samples/s of 2,511 needed; give")
    assert ESCAPE not in page


def test_colour_is_there_when_asked_for_and_changes_no_words(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    coloured = render(FAILING, color=True).decode()
    assert f"{ESCAPE}[1;31mfail" in coloured
    plain = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).split("\n"))
    assert plain == render(FAILING).decode()


def test_markup_and_escapes_are_printed_not_obeyed():
    odd = SUPPLY.model_copy(
        update={
            "subject": "rank 0",
            "cause": "[red]x[/red] :smile: [/] \x1b[31m\x07",
            "unit": "[b]",
        }
    )
    page = render(
        report(result("[i]dataloader", Outcome.FAIL, odd, output="[/bold]"), exit_code=1)
    ).decode()
    for literal in (
        "[rank 0]",
        "[red]x[/red] :smile: [/] \\x07",
        "[b]",
        "[i]dataloader",
        "[/bold]",
    ):
        assert literal in page
    assert ESCAPE not in page


def test_the_worst_comes_first_below_the_rows():
    page = render(FAILING).decode()
    assert page.index("\nfail  ") < page.index("\nwarn  ")


def test_explain_shows_the_findings_that_passed_too():
    page = render(PASSING, explain=True).decode()
    assert "\npass        gpus.name [GPU 1]: NVIDIA H100 80GB HBM3\n" in page
    assert "gpus.name" not in render(PASSING).decode()
    page = render(FAILING, explain=True).decode()
    assert page.index("\nfail  ") < page.index("\nwarn  ") < page.index("\npass  ")


def test_warnings_of_the_settings_are_notes():
    assert "note: PREFLIGHT_DAAT is not an option" in render(MIXED).decode()


def test_a_word_longer_than_the_page_is_folded_not_lost():
    odd = SUPPLY.model_copy(update={"cause": "x" * 300})
    page = render(report(result("dataloader", Outcome.FAIL, odd)), width=60).decode()
    assert page.count("x") >= 300
