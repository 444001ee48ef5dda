"""What is seen while a run goes on, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from preflight import progress
from preflight.progress import ProgressLines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock the test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_elsewhere_a_check_speaks_at_first_and_then_every_two_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    lines = ProgressLines(stream, quiet=False)
    for second in (0.0, 0.5, 1.5, 2.5, 3.0):
        clock.now = 100.0 + second
        lines.progress("dataloader", f"step {second}")
    lines.progress("shm", "writing")
    said = stream.getvalue().splitlines()
    assert [line.split("step ")[-1] for line in said[:2]] == ["0.0", "2.5"]
    assert said[2].endswith("shm: writing")
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_there_is_one_living_line(clock: Clock) -> None:
    stream = Terminal()
    lines = ProgressLines(stream, quiet=False)
    lines.progress("shm", "writing")
    lines.progress("shm", "reading")
    lines.clear()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_quiet_says_notes_only(clock: Clock) -> None:
    for stream in (io.StringIO(), Terminal()):
        lines = ProgressLines(stream, quiet=True)
        lines.progress("shm", "writing")
        lines.note("reports are lost")
        lines.clear()
        assert stream.getvalue() == "preflight: reports are lost\n"


def test_a_lost_stream_loses_only_the_lines(clock: Clock) -> None:
    stream = io.StringIO()
    lines = ProgressLines(stream, quiet=False)
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.write("x")
    lines.progress("shm", "writing")
    lines.note("still here")
