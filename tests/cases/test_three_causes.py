"""One folder of JPEGs, three conditions: three causes, and each remedy, followed, leads to a pass.

A CPU quota of one CPU, storage held to a tenth, too little /dev/shm. Rates of CPUs are compared, so
it runs alone: `make cases`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from preflight.checks.dataloader.explained import EXAMPLES
from tests.cases.play import play
from tests.cases.table import THREE


@pytest.mark.timeout(600)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a quota of one CPU takes nothing off")
def test_three_conditions_three_causes_three_remedies(images: Path) -> None:
    played = {case.name: play(case, images, tries=3) for case in THREE}
    for name, what in played.items():
        if what.skipped:
            pytest.skip(f"{name}: {what.skipped}")
        pages = "\n".join(ran.page for ran in what.runs)
        assert not what.wrong, f"{name}: {what.wrong}, seen {what.seen}\n{pages}"
    assert [what.after for what in played.values()] == ["pass"] * 3
    assert len({what.seen for what in played.values()}) == 3
    assert len({what.remedy for what in played.values()}) == 3
    assert [[ran.code for ran in what.runs] for what in played.values()] == [[1, 0]] * 3
    for what in played.values():  # what `preflight explain` and README show is still so
        assert _words(what.cause) in _words(EXAMPLES), what.cause
        assert _words(what.remedy) in _words(EXAMPLES), what.remedy


def _words(text: str) -> str:
    """Without its numbers and line breaks, and what others happened to take of the CPUs."""
    text = " ".join(re.sub(r" \(others' \d+% left out\)", "", text).split())
    return re.sub(r"[\d.,]*\d", "#", text)
