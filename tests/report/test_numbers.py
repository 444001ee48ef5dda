import pytest

from preflight.report.numbers import apart, number, seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (811.9, "812"), (2511.0, "2,511"), (2790, "2,790"), (0.1122, "0.1122"), (44.1, "44.1"),
        (53.07, "53.1"), (2.0, "2"), (2.456, "2.46"), (99.97, "100"), (0.0, "0"), (-0.0, "0"),
        (100.0, "100"), (-811.9, "-812"), (0.291, "0.291"), (1e300, "1e+300"), (3e-7, "3e-07"),
        (True, "1"), (10**20, "100,000,000,000,000,000,000"),
    ],
)  # fmt: skip
def test_number(value, text):
    assert number(value) == text


def test_numbers_that_differ_never_look_equal():
    assert apart(2510.6, 2511.0) == ("2,510.6", "2,511")
    assert apart(811.9, 2511.0) == ("812", "2,511")
    assert apart(0.89999999, 0.9) == ("0.89999999", "0.9")


def test_equal_numbers_are_written_shortly():
    assert apart(8, 8.0) == ("8", "8")


def test_seconds():
    assert seconds(13.912) == "13.9 s"
