import json
from xml.etree import ElementTree

import pytest
from lxml import etree

from preflight.model import Node
from preflight.outcome import Outcome
from preflight.report.junit import render

from .feed_reports import ALL_REPORTS, FOUR_RANKS, HOST_ONLY
from .reading_junit import SUBSET, outcome, read
from .reports import FAILING, INCOMPLETE, MIXED, PASSING, REPORTS, SHM, SHM_RESULT, report, result

WORD = {"pass": "pass", "warn": "pass", "fail": "fail", "error": "error", "skip": "skip"}


def cases(drawn):
    (suite,) = read(render(drawn))
    return {f"{case.classname}:{case.name}": case for case in suite}


@pytest.mark.parametrize("name", ALL_REPORTS)
def test_the_reader_sees_every_finding_with_its_outcome(name):
    expected = {}
    for shown in ALL_REPORTS[name].results:
        for finding in shown.findings:
            case = finding.id.removeprefix(f"{shown.check}.")
            subject = f" [{finding.subject}]" if finding.subject else ""
            expected[f"preflight.{shown.check}:{case}{subject}"] = WORD[finding.outcome]
        if not shown.findings:
            expected[f"preflight.{shown.check}:{shown.check}"] = WORD[shown.outcome]
    if name in ("usage", "incomplete", "interrupted"):
        expected["preflight:run"] = "error"
    assert {key: outcome(case) for key, case in cases(ALL_REPORTS[name]).items()} == expected


@pytest.mark.parametrize("name", ALL_REPORTS)
def test_counts_and_times(name):
    parsed = read(render(ALL_REPORTS[name]))
    (suite,) = parsed
    seen = [outcome(case) for case in suite]
    for level in (parsed, suite):
        assert (level.tests, level.failures, level.errors, level.skipped, level.time) == (
            len(seen), seen.count("fail"), seen.count("error"), seen.count("skip"),
            ALL_REPORTS[name].duration_s,
        )  # fmt: skip
    durations = [shown.duration_s for shown in ALL_REPORTS[name].results]
    assert sum(case.time for case in suite) == pytest.approx(sum(durations))


def test_the_suite_is_the_node():
    parsed = read(render(FAILING))
    (suite,) = parsed
    assert parsed.name == "preflight"
    assert (suite.name, suite.hostname, suite.timestamp) == (
        "gpu-b17", "preflight-x7k2p", "2027-01-15T03:12:44"
    )  # fmt: skip
    values = {entry.name: entry.value for entry in suite.properties()}
    assert values["exit_code"] == "1" and values["outcome"] == "fail"
    assert values["version"] == "0.1.0" and values["complete"] == "true"
    assert values["dataloader.supply_samples_per_s"] == "811.9"
    assert values["shm.need_gib"] == "0.1122"
    assert not any("samples[" in name or name.endswith(".early") for name in values)


def test_message_and_text_of_a_failure():
    (failure,) = cases(FAILING)["preflight.dataloader:supply [rank 0]"].result
    assert failure.message == "812 +- 22 samples/s of 2,511 needed"
    assert failure.text.split("\n") == [
        "812 +- 22 samples/s of 2,511 needed",
        "why: the loader workers used all of the 2.0-CPU quota",
        "fix: give the container 7 CPUs (2,790 / 811.9 x 2.0 = 6.9)",
        "blame: how the container or the job was started",
        "limit from: MLPerf Storage v2.0 rules, AU 90 %",
    ]


def test_an_error_carries_the_last_lines_of_its_process():
    (error,) = cases(MIXED)["preflight.dataloader:supply [rank 1]"].result
    assert error.text.endswith(
        "last lines printed:\nUserWarning: <worker 3> said `|` & left\nprogress 10 %"
    )


def test_passes_and_warnings_put_their_numbers_out():
    assert cases(FAILING)["preflight.shm:need [/dev/shm]"].system_out.split("\n") == [
        "observed=4.0", "comparison=at_least", "limit=0.1122", "unit=GiB"
    ]  # fmt: skip
    waived = cases(MIXED)["preflight.shm:need [/dev/shm]"].system_out
    assert waived.startswith("warning: 0.0625 GiB of 0.1122 needed\nwhy: ")
    assert "note: waived, would be fail\nobserved=0.0625\n" in waived


def test_the_case_of_the_supply_tells_of_the_feed_first():
    for drawn in (HOST_ONLY, FOUR_RANKS):
        told = {key: case.system_out or "" for key, case in cases(drawn).items()}
        (ours,) = [key for key, text in told.items() if text.startswith("feed   ")]
        assert ours == "preflight.dataloader:supply [rank 0]"
        assert "<- limits: 2.46 ms of CPU a sample, 2.25 of them decode\n" in told[ours]


def test_the_supply_is_told_of_wherever_it_stands_among_the_findings():
    dataloader = HOST_ONLY.results[-1]
    later = dataloader.model_copy(update={"findings": (SHM, *dataloader.findings)})
    shown = cases(report(later, exit_code=1, outcome=Outcome.FAIL))
    assert shown["preflight.dataloader:supply [rank 0]"].system_out.startswith("feed   812")
    assert "feed" not in shown["preflight.dataloader:shm.need [/dev/shm]"].system_out


def test_the_first_case_of_a_loader_without_a_supply_tells_of_the_feed():
    cut_off = HOST_ONLY.results[-1].model_copy(update={"findings": (), "reason": "stopped"})
    (case,) = cases(report(cut_off, exit_code=1, outcome=Outcome.FAIL)).values()
    assert case.name == "dataloader" and case.system_out.startswith("feed   812 +- 22 samples/s")


def test_stages_are_properties_under_their_names():
    (suite,) = read(render(HOST_ONLY))
    values = {entry.name: entry.value for entry in suite.properties()}
    assert values["dataloader.stages.decode.samples_per_s"] == "890.0"
    assert values["dataloader.cpu_budget.getitem_ms"] == "2.25"
    assert values["storage.first_touch_samples_per_s"] == "9800.0"


def test_a_skip_gives_its_reason_twice():
    (skipped,) = cases(MIXED)["preflight.pinned_copy:pinned_copy"].result
    assert skipped.message == skipped.text == "GH200: a coherent link has no PCIe verdict"


@pytest.mark.parametrize(
    ("changes", "reds"),
    [
        ({"exit_code": 130}, 1), ({"exit_code": 143}, 1), ({"exit_code": 3}, 1),
        ({"exit_code": 3, "outcome": Outcome.SKIP, "results": ()}, 1),
        ({"exit_code": 0, "results": ()}, 1), ({"complete": False}, 1),
        ({"outcome": Outcome.ERROR}, 1), ({"exit_code": 0}, 0),
    ],
)  # fmt: skip
def test_nothing_but_a_pass_looks_green(changes, reds):
    drawn = report(SHM_RESULT).model_copy(update=changes)
    assert read(render(drawn)).errors == reds


def test_an_incomplete_run_with_a_failure_has_both():
    drawn = FAILING.model_copy(update={"complete": False})
    parsed = read(render(drawn))
    assert (parsed.failures, parsed.errors) == (1, 1)
    assert read(render(INCOMPLETE)).errors == 3


def test_an_option_that_changes_the_code_leaves_the_cases_red():
    drawn = FAILING.model_copy(update={"exit_code": 0})
    assert read(render(drawn)).failures == 1


def test_names_that_repeat_are_numbered():
    drawn = report(result("shm", Outcome.PASS, SHM, SHM, SHM))
    assert list(cases(drawn)) == [
        "preflight.shm:need [/dev/shm]", "preflight.shm:need [/dev/shm] #2",
        "preflight.shm:need [/dev/shm] #3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("started_at", "timestamp"),
    [
        ("2027-01-15T05:12:44+02:00", "2027-01-15T03:12:44"),
        ("2027-01-15T03:12:44.250000Z", "2027-01-15T03:12:44"),
        ("2027-01-15T03:12:44", "2027-01-15T03:12:44"),
        ("yesterday", None),
    ],
)
def test_timestamp_is_utc_without_an_offset(started_at, timestamp):
    (suite,) = read(render(PASSING.model_copy(update={"started_at": started_at})))
    assert suite.timestamp == timestamp


def test_numbers_are_never_nan_or_exponents():
    shown = SHM_RESULT.model_copy(
        update={"duration_s": 3e-7, "reading": {"a": float("nan"), "b": [{"c": float("inf")}]}}
    )
    drawn = report(shown, duration_s=1e-9)
    document = render(drawn)
    read(document)
    assert b'time="0.000000"' in document
    assert b"nan" not in document.lower().replace(b"finan", b"") and b"inf" not in document


def test_what_xml_refuses_is_spelt_out_everywhere():
    odd = "a\x00\x1b[1mb\ufffe\udcffc"
    finding = SHM.model_copy(
        update={"outcome": Outcome.FAIL, "unit": odd, "cause": f"because {odd}", "subject": odd}
    )
    shown = cases(report(result(odd, Outcome.FAIL, finding, output=odd), reason=odd, exit_code=1))
    (case,) = shown.values()
    (failure,) = case.result
    for text in (case.name, case.classname, failure.message, *failure.text.split("\n")[:1]):
        assert "a\\x00b\\ufffe\\udcffc" in text
    assert "\nwhy: because a\\x00b\\ufffe" in failure.text
    assert failure.text.endswith("last lines printed:\na\\x00b\\ufffe\\udcffc")


def test_empty_names_get_one():
    drawn = report(
        result("shm", Outcome.PASS, SHM.model_copy(update={"id": " ", "subject": None})),
        node=Node(name="\n", name_from="", hostname=""),
    )
    (suite,) = read(render(drawn))
    assert (suite.name, suite.hostname) == ("unknown node", "unknown host")
    assert [case.name for case in suite] == ["finding"]


def test_a_number_without_any_name_is_still_a_property():
    (suite,) = read(render(report(result("", Outcome.PASS, SHM, reading=5))))
    assert {entry.name: entry.value for entry in suite.properties()}["reading"] == "5"


DOCUMENT = render(REPORTS["failing"]).decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('time="0.021000"', ""),
        ('time="0.021000"', 'time="2.1e-2"'),
        ('name="preflight" ', ""),
        ('skipped="0" time="13.912000">', 'time="13.912000">'),
        ('message="812 +- 22 samples/s of 2,511 needed"', ""),
        ('message="812 +- 22 samples/s of 2,511 needed"', 'message=" "'),
        ("</failure>", '</failure><skipped message="both">both</skipped>'),
        ("<testcase ", "<testsuite><testcase "),
        ('name="need [/dev/shm]" time="0.204000" classname="preflight.shm"',
         'name="workers_per_cpu" time="0.204000" classname="preflight.limits"'),
        ('timestamp="2027-01-15T03:12:44"', 'timestamp="2027-01-15T03:12:44Z"'),
    ],
)  # fmt: skip
def test_the_schema_refuses_what_a_reader_would_trip_over(old, new):
    assert old in DOCUMENT
    broken = DOCUMENT.replace(old, new, 1)
    if "<testsuite><" in broken:
        broken = broken.replace("</testcase>", "</testcase></testsuite>", 1)
    assert not SUBSET.validate(etree.fromstring(broken.encode()))


def test_values_are_those_of_the_record():
    for name, drawn in ALL_REPORTS.items():
        out = [case.findtext("system-out") or "" for case in
               ElementTree.fromstring(render(drawn)).iter("testcase")]  # fmt: skip
        observed = [line for text in out for line in text.split("\n") if "observed=" in line]
        record = [
            finding.observed if isinstance(finding.observed, str) else json.dumps(finding.observed)
            for shown in drawn.results
            for finding in shown.findings
            if finding.observed is not None and finding.outcome in (Outcome.PASS, Outcome.WARN)
        ]
        assert observed == [f"observed={value}" for value in record], name
