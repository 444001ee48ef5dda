"""Every format of every report, byte for byte. After a change that is meant, look at the diff of

UPDATE_GOLDEN=1 python -m pytest tests/report/test_golden.py
"""

import os
from pathlib import Path

import pytest

from preflight.report import FORMATS

from .feed_reports import ALL_REPORTS

GOLDEN = Path(__file__).parent.parent / "golden" / "report"
EXTENSION = {"table": "txt", "json": "json", "junit": "xml", "markdown": "md"}


def test_every_format_has_golden_files():
    assert set(EXTENSION) == set(FORMATS)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ALL_REPORTS)
def test_golden(name, format):
    drawn = FORMATS[format](ALL_REPORTS[name])
    file = GOLDEN / f"{name}.{EXTENSION[format]}"
    if "UPDATE_GOLDEN" in os.environ:
        file.write_bytes(drawn)
    assert drawn.decode() == file.read_bytes().decode()
