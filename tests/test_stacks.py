"""Stacks as faulthandler prints them: which line of the job's own code they name."""

from __future__ import annotations

import faulthandler
import sysconfig
import tempfile
from pathlib import Path

import pytest

from preflight.stacks import frames, place

STDLIB = sysconfig.get_path("stdlib")
STACK = f"""
  File "{STDLIB}/threading.py", line 629 in wait
  File "/job/data.py", line 17 in __getitem__
  File "/job/train.py", line 3 in main
"""
FATAL = "Fatal Python error: Segmentation fault\n\n"


@pytest.mark.parametrize(
    "heading",
    [
        "Stack (most recent call first):",
        f"{FATAL}Current thread 0x00007f2a (most recent call first):",
        f"{FATAL}Current thread 0x00007f2a [python3] (most recent call first):",
        "Thread 0x00007f2a (most recent call first):",
    ],
)
def test_the_innermost_line_of_the_jobs_code_is_named(heading: str) -> None:
    text = f"worker answers: 0 12\n{heading}{STACK}\nExtension modules: numpy\n"
    assert len(frames(text)) == 3
    assert place(text) == "/job/data.py, line 17, in __getitem__"


def test_the_last_stack_counts_and_what_is_no_stack_names_nothing() -> None:
    other = 'Stack (most recent call first):\n  File "/job/other.py", line 1 in f\n'
    assert place(f"Stack (most recent call first):{STACK}{other}") == "/job/other.py, line 1, in f"
    traceback = 'Traceback (most recent call last):\n  File "/job/data.py", line 17, in f\n'
    assert place(traceback) is None and place("") is None
    ours = f'Stack (most recent call first):\n  File "{STDLIB}/queue.py", line 1 in get\n'
    assert place(ours) is None


def test_what_is_installed_is_named_where_the_jobs_own_code_is_not_on_the_stack() -> None:
    site = "/usr/lib/python3/site-packages"
    text = (
        f'Stack (most recent call first):\n  File "{site}/torch/x.py", line 1 in f\n'
        f'  File "{site}/webdataset/tar.py", line 2 in g\n'
    )
    assert place(text) == f"{site}/webdataset/tar.py, line 2, in g"


def test_a_stack_that_python_itself_prints_is_read_with_the_code_of_its_line() -> None:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=False)
        file.seek(0)
        found = place(file.read())
    assert found is not None and found.startswith(str(Path(__file__)))
    assert "(faulthandler.dump_traceback(file, all_threads=False))" in found
