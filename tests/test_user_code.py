"""The user's module: how it is named, found and imported, and how its errors are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from preflight.user_code import (
    UserCodeError,
    environment,
    load,
    parse,
    said,
    set_environment,
)
from tests import making


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what is imported and set from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with mock.patch.dict(os.environ):
        yield tmp_path
    for name in [name for name in sys.modules if name.startswith("mydata")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("spec", "parts"),
    [("data:make", ("data", "make")), ("a.b_2.c:Maker.make", ("a.b_2.c", "Maker.make"))],
)
def test_a_module_and_a_name_in_it(spec: str, parts: tuple[str, str]) -> None:
    assert parse(spec) == parts


@pytest.mark.parametrize(
    "spec",
    ["", "data", "data:", ":make", "data.py", "./data.py:make", "data:make()", "a:b:c", "a..b:c",
     "data:make ", "1a:b", "a-b:c"],
)  # fmt: skip
def test_what_is_no_spec(spec: str) -> None:
    with pytest.raises(UserCodeError, match=r"write MODULE:FACTORY, such as .*no \.py"):
        parse(spec)


def test_a_factory_is_found_in_the_current_folder(folder: Path) -> None:
    (folder / "mydata_a.py").write_text(
        "class Maker:\n    @staticmethod\n    def make(): return 7\n"
    )
    assert load("mydata_a:Maker.make")() == 7


def test_a_file_in_the_current_folder_stands_in_for_no_other_module(folder: Path) -> None:
    (folder / "colorsys.py").write_text("raise RuntimeError('shadowed')")
    (folder / "mydata_b.py").write_text("import colorsys\nmake = colorsys.rgb_to_hsv\n")
    assert load("mydata_b:make")(0, 0, 0) == (0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("text", "said_of_it"),
    [
        (None, "there is no module mydata_c in PYTHONPATH (/nowhere), among what is installed, "
               "and in the current folder ({folder})"),
        ("import sys\n\nimport nowhere_at_all\n", "importing it raised ModuleNotFoundError: No "
         "module named 'nowhere_at_all' ({folder}/mydata_c.py, line 3); in PYTHONPATH (/nowhere)"),
        ("x = 1\n1 / 0\n", "importing it raised ZeroDivisionError: division by zero "
                           "({folder}/mydata_c.py, line 2)"),
        ("def make(:\n", "importing it raised SyntaxError: invalid syntax "
                         "({folder}/mydata_c.py, line 1)"),
        ("import json\njson.loads('{')\n", "importing it raised json.decoder.JSONDecodeError: "),
        ("import sys\nsys.exit(4)\n", "importing it called sys.exit(4) ({folder}/mydata_c.py, "
                                      "line 2): put what only a script does under"),
        ("mak = 1\n", "module mydata_c ({folder}/mydata_c.py) has no make"),
        ("make = None\n", "make is None: name a function that returns"),
        ("make = [1]\n", "make is a list: name a function"),
        ("make = 8\n", "make is an int: name a function"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, said_of_it: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    if text is not None:
        (folder / "mydata_c.py").write_text(text)
    with pytest.raises(UserCodeError) as caught:
        load("mydata_c:make")
    assert said_of_it.format(folder=folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_package_that_lacks_the_module(folder: Path) -> None:
    with pytest.raises(UserCodeError, match=r"there is no module json\.nothing in PYTHONPATH"):
        load("json.nothing:make")
    with pytest.raises(UserCodeError, match="there is no module nowhere_a in PYTHONPATH"):
        load("nowhere_a.b:make")


def test_an_error_is_told_by_its_first_line_and_the_last_place_in_user_code(folder: Path) -> None:
    (folder / "mydata_d.py").write_text(
        "import json\n\ndef make():\n    try:\n        json.loads('{')\n"
        "    except ValueError as error:\n        raise KeyError('a\\nb') from error\n"
        "def long():\n    raise ValueError('x' * 999 + '\\nsecond line')\n"
    )
    with pytest.raises(KeyError) as caught:
        load("mydata_d:make")()
    assert said(caught.value) == f"KeyError: 'a\\nb' ({folder}/mydata_d.py, line 7)"
    with pytest.raises(ValueError) as long:
        load("mydata_d:long")()
    assert "second" not in said(long.value) and len(said(long.value)) < 400


def test_what_a_worker_raised_is_told_as_it_was_raised_there() -> None:
    error = RuntimeError(
        "Caught KeyError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/x/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop\n'
        "    data = fetcher.fetch(index)\n"
        '  File "/home/me/data.py", line 12, in __getitem__\n'
        "    return self.labels[index]\n"
        '  File "/x/site-packages/PIL/Image.py", line 3, in open\n'
        "    raise\n"
        "KeyError: 'label'\n"
    )
    assert said(error) == "KeyError: 'label' (/home/me/data.py, line 12)"


def test_user_code_that_is_installed_is_named_and_torch_is_not() -> None:
    def caught(file: str) -> RuntimeError:
        return RuntimeError(f'Original Traceback:\n  File "{file}", line 5, in f\nValueError: no')

    assert said(caught("/x/site-packages/mine/data.py")).endswith(
        "(/x/site-packages/mine/data.py, line 5)"
    )
    for nobodys in ("/x/site-packages/torch/utils/data/fetch.py", "<frozen importlib._bootstrap>"):
        assert said(caught(nobodys)) == "ValueError: no"


def test_ranks_and_data_as_a_launcher_sets_them(folder: Path) -> None:
    variables = environment(making.job(ranks=4, data="/data"), 2)
    set_environment(variables)
    ours = {name: os.environ[name] for name in variables}
    assert ours == {
        "RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4",
        "PREFLIGHT_DATA": "/data",
    }  # fmt: skip
    set_environment(environment(making.job(), 0))
    assert "PREFLIGHT_DATA" not in os.environ
