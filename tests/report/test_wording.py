import pytest

from preflight.model import Finding
from preflight.outcome import Blame, Outcome
from preflight.report.wording import alike, decisive, entries, explanation, lowered, row, seen

from .reports import FAILING, MIXED, SHM, SUPPLY, WORKERS, result


def finding(**fields):
    return Finding(**({"id": "c.f", "outcome": Outcome.FAIL} | fields))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"observed": 811.9, "comparison": "at_least", "limit": 2511.0, "unit": "samples/s"},
         "812 samples/s of 2,511 needed"),
        ({"observed": 4.0, "comparison": "at_least", "limit": 0.1122, "unit": "GiB"},
         "4 GiB, at least 0.1122 needed"),
        ({"observed": 2.0, "comparison": "at_most", "limit": 1.0, "unit": "workers/CPU"},
         "2 workers/CPU, at most 1 allowed"),
        ({"observed": 7, "comparison": "equals", "limit": 8, "unit": "GPUs"},
         "7 GPUs, 8 expected"),
        ({"observed": "470.57.02", "comparison": "at_least", "limit": "525.60.13"},
         "470.57.02, at least 525.60.13 needed"),
        ({"observed": 2490.4, "comparison": "at_least", "limit": 2511, "cause": "neighbours",
          "outcome": Outcome.ERROR}, "2,490 of 2,511 needed: neighbours"),
        ({"observed": 999, "cause": "the driver does not start"}, "999: the driver does not start"),
        ({"observed": "999", "cause": "cuInit gave 999"}, "cuInit gave 999"),
        ({"observed": False, "cause": "a kernel hung"}, "a kernel hung"),
        ({"remedy": "look at the log"}, "look at the log"),
        ({}, "fail"),
        ({"outcome": Outcome.PASS, "observed": True}, "ok"),
        ({"outcome": Outcome.PASS, "observed": 1.5, "unit": "ms"}, "1.5 ms"),
        ({"outcome": Outcome.PASS, "observed": "NVIDIA L4"}, "NVIDIA L4"),
        ({"outcome": Outcome.PASS}, "ok"),
    ],
)  # fmt: skip
def test_seen(fields, sentence):
    assert seen(finding(**fields)) == sentence


def test_the_interval_of_the_rate_that_was_judged_is_shown():
    loader = FAILING.results[-1]
    assert seen(SUPPLY, loader.reading) == "812 +- 22 samples/s of 2,511 needed"
    assert seen(SUPPLY, [{"deep": [loader.reading]}]) == "812 +- 22 samples/s of 2,511 needed"
    other = SUPPLY.model_copy(update={"observed": 812.0})
    assert "+-" not in seen(other, loader.reading)
    ratio = SUPPLY.model_copy(update={"unit": "of the link"})
    assert "+-" not in seen(ratio, loader.reading)


def test_the_interval_is_as_fine_as_the_value():
    rate = {"value": 53.07, "low": 52.9, "high": 53.3, "unit": "GB/s"}
    judged = finding(observed=53.07, comparison="at_least", limit=90, unit="GB/s")
    assert seen(judged, {"rate": rate}) == "53.1 +- 0.2 GB/s of 90 needed"
    assert seen(judged, {"rate": rate | {"low": None}}) == "53.1 GB/s of 90 needed"


def test_a_result_without_findings_speaks_for_itself():
    (entry,) = entries(result("gpus", Outcome.SKIP, reason="no GPU"))
    assert (entry.id, entry.outcome, seen(entry)) == ("gpus", Outcome.SKIP, "no GPU")


def test_a_result_worse_than_its_findings_speaks_too():
    cut_off = result("shm", Outcome.ERROR, SHM, reason="stopped after 10 s")
    assert [seen(entry) for entry in entries(cut_off)][1:] == ["stopped after 10 s"]
    assert row(cut_off) == "stopped after 10 s"
    assert entries(result("shm", Outcome.PASS, SHM)) == (SHM,)


def test_decisive_is_the_worst_and_then_the_first_with_a_limit():
    plain = SHM.model_copy(update={"limit": None})
    assert decisive(result("shm", Outcome.PASS, plain, SHM)) is SHM
    assert decisive(result("shm", Outcome.FAIL, SHM, WORKERS, SUPPLY)) is SUPPLY


def test_of_several_that_miss_the_furthest_from_its_limit_speaks():
    slow = [SUPPLY.model_copy(update={"observed": seen, "limit": 100}) for seen in (50, 40, 60)]
    assert decisive(result("dataloader", Outcome.FAIL, WORKERS, *slow)) is slow[1]
    many = [finding.model_copy(update={"comparison": "at_most", "limit": 1}) for finding in slow]
    assert decisive(result("dataloader", Outcome.FAIL, *many)) is many[2]
    other = [finding.model_copy(update={"comparison": "equals"}) for finding in slow]
    assert decisive(result("dataloader", Outcome.FAIL, *other)) is other[0]


def test_row_says_waived_not_required_and_cut_off():
    rows = {shown.check: row(shown) for shown in MIXED.results}
    assert rows["shm"] == "need: 0.0625 GiB of 0.1122 needed (waived, would be fail)"
    assert rows["storage"].endswith("(not required, would be error)")
    assert rows["dataloader"].endswith("(cut off before its end)")


def test_row_counts_the_other_problems():
    shown = result("limits", Outcome.FAIL, SHM, WORKERS, SUPPLY, required=False)
    assert row(shown).endswith("(not required, 1 more below)")


def test_lowered_is_silent_about_plain_findings():
    assert lowered(SUPPLY, required=True) is None


def test_explanation_does_not_repeat_the_sentence():
    told = finding(cause="a kernel hung", remedy="reboot", blame=Blame.NODE, source="a table")
    assert explanation(told) == [
        ("fix", "reboot"), ("blame", "this node"), ("limit from", "a table")
    ]  # fmt: skip


def test_findings_that_differ_only_in_subject_and_number_are_told_once():
    slow = [SUPPLY.model_copy(update={"subject": f"rank {n}", "observed": n}) for n in range(3)]
    other = SUPPLY.model_copy(update={"cause": "the disk"})
    groups = alike(result("dataloader", Outcome.FAIL, *slow, other, SHM))
    assert [len(group) for group in groups] == [3, 1]
