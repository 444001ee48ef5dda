"""The staged cases that no neighbour can change: waits, and what fails before a rate is measured.

All of them: `make cases`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.cases.play import Case, play
from tests.cases.table import CASES

_HERE = ("lock", "volume_not_mounted")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [c for c in CASES if c.name in _HERE], ids=lambda case: case.name)
def test_cause_remedy_and_what_follows_it(case: Case, images: Path) -> None:
    played = play(case, images)
    if played.skipped:
        pytest.skip(played.skipped)
    pages = "\n".join(ran.page for ran in played.runs)
    assert not played.wrong, f"{played.wrong}: seen {played.seen}, {played.remedy}\n{pages}"
    assert (played.after == "pass") == (case.after is not None)


def test_the_table_is_what_was_asked_for() -> None:
    names = Counter(case.name for case in CASES)
    assert len(names) >= 20 and max(names.values()) == 1
    assert set(_HERE) <= set(names)
