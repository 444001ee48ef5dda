import pytest

from preflight.report.numbers import apart, margin, number, seconds, shares


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


def test_a_margin_is_as_fine_as_its_number():
    assert margin(811.9, 790.0, "812") == " +- 22"
    assert margin(53.07, 52.9, "53.1") == " +- 0.2"


@pytest.mark.parametrize(
    ("part", "whole", "texts"),
    [
        (811.9, 2790, ("29 %", "71 %")), (1, 2, ("50 %", "50 %")), (994, 1000, ("99 %", "1 %")),
        (995.1, 1000, ("99.5 %", "0.5 %")), (999.7, 1000, ("over 99.9 %", "under 0.1 %")),
        (1000, 1000, ("100 %", "0 %")), (4100, 2790, ("147 %", "0 %")),
        (28000, 2790, ("over 10 times", "0 %")), (4, 1000, ("0.4 %", "99.6 %")),
        (0.4, 1000, ("under 0.1 %", "over 99.9 %")), (1e308, 5e-324, ("over 10 times", "0 %")),
    ],
)  # fmt: skip
def test_shares_add_up_and_never_round_to_all_or_nothing(part, whole, texts):
    assert shares(part, whole) == texts


def test_seconds():
    assert seconds(13.912) == "13.9 s"
