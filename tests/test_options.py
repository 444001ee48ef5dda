"""How the text of options becomes values, and what is said of variables nobody knows."""

from __future__ import annotations

import pytest
import typer

from preflight import options


@pytest.mark.parametrize(
    ("items", "ids"),
    [
        (None, ()),
        (["limits"], ("limits",)),
        (["limits,shm", "dataloader"], ("limits", "shm", "dataloader")),
        (["limits,", "shm"], ("limits", "shm")),  # "limits, shm" split at its blank
        ([" , "], ()),
    ],
)
def test_lists_are_repeated_or_have_commas(items: list[str] | None, ids: tuple[str, ...]) -> None:
    assert options.listed(items) == ids


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", ()),
        ("a.b=1", ("a.b=1",)),
        ("a.b=1, c.d=2", ("a.b=1", "c.d=2")),
        ("run.checks=[limits, shm],a.b=1", ("run.checks=[limits, shm]", "a.b=1")),
        ("a.b={value: 1, source: x},", ("a.b={value: 1, source: x}",)),
    ],
)
def test_settings_are_split_outside_brackets(text: str, items: tuple[str, ...]) -> None:
    assert options.split_settings(text) == items


@pytest.mark.parametrize(
    ("text", "seconds"), [("120", 120), ("120s", 120), ("2m", 120), ("1.5 m", 90), ("1h", 3600)]
)
def test_times(text: str, seconds: float) -> None:
    assert options.seconds("--deadline", text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", "5 days", "1e3", "nan"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="such as 120s or 2m"):
        options.seconds("--deadline", text)


def test_unknown_variables_are_one_line_with_a_hint() -> None:
    known = {"PREFLIGHT_DATA": "", "PREFLIGHT_SET": "", "PREFLIGHT_CPU_REQUEST": "", "HOME": ""}
    assert options.unknown_variables(known) is None
    line = options.unknown_variables({**known, "PREFLIGHT_DATTA": "", "PREFLIGHT_PORT": ""})
    assert line is not None and "\n" not in line
    assert "PREFLIGHT_DATTA (did you mean PREFLIGHT_DATA?)" in line
    assert "PREFLIGHT_PORT" in line
