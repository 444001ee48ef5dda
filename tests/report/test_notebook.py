from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given

from preflight.model import SettingsRecord
from preflight.outcome import Outcome
from preflight.report.headline import headline
from preflight.report.notebook import render

from .feed_reports import ALL_REPORTS, HOST_ONLY
from .reports import FAILING, MIXED, PASSING, SUPPLY, report, result
from .test_any_text import REPORT, many

HOSTILE = "<script>alert(1)</script> <img src=x onerror=y> &amp; \"'> </td> <!-- ]]> \x1b[31m\x07"
TAGS = {"div", "strong", "table", "tr", "td", "details", "summary", "pre", "small"}


class Reader(HTMLParser):
    """Reads as a browser does: which tags are open, which attributes they have, what is said."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes, self.said = [], set(), set(), []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    @property
    def text(self):
        return "".join(self.said)


def assert_sound(page):
    reader = Reader(page)
    assert not reader.open and reader.tags <= TAGS and reader.attributes <= {"style"}
    assert "".join(ElementTree.fromstring(page).itertext()) == reader.text
    return reader


@pytest.mark.parametrize("name", ALL_REPORTS)
def test_it_is_html_that_says_what_the_report_says(name):
    shown = assert_sound(render(ALL_REPORTS[name]).decode()).text
    assert shown.startswith(headline(ALL_REPORTS[name]))
    for each in ALL_REPORTS[name].results:
        assert each.check in shown


def test_cause_remedy_and_source_are_there():
    shown = assert_sound(render(FAILING).decode()).said
    for text in (SUPPLY.cause, SUPPLY.remedy, SUPPLY.source, "how the container or the job was"):
        assert any(text in said for said in shown)


def test_the_feed_comes_between_verdict_and_table():
    shown = assert_sound(render(HOST_ONLY).decode()).text
    feed = "the GPU would wait 71 % of the time\n       storage first touch    9,800 /s\n"
    assert shown.index(headline(HOST_ONLY)) < shown.index(feed) < shown.index("checkoutcome")


def test_text_from_the_machine_is_shown_not_obeyed():
    odd = SUPPLY.model_copy(
        update={"id": f"dataloader.{HOSTILE}", "subject": HOSTILE, "unit": HOSTILE,
                "cause": f"because {HOSTILE}", "remedy": HOSTILE, "source": HOSTILE}
    )  # fmt: skip
    hostile = report(
        result(HOSTILE, Outcome.FAIL, odd, output=HOSTILE), outcome=Outcome.FAIL, exit_code=1,
        reason=HOSTILE, settings=SettingsRecord(warnings=(HOSTILE,), layers=(HOSTILE,)),
        node=PASSING.node.model_copy(update={"name": HOSTILE}),
    )  # fmt: skip
    shown = assert_sound(render(hostile).decode()).text
    assert "<img src=x onerror=y> &amp; \"'> </td> <!-- ]]> \\x07" in shown


def test_explain_shows_the_findings_that_passed_too():
    assert "gpus.name [GPU 1]" not in assert_sound(render(PASSING).decode()).text
    assert "gpus.name [GPU 1]" in assert_sound(render(PASSING, explain=True).decode()).text


def test_findings_that_differ_only_in_subject_share_their_remedy():
    each = [SUPPLY.model_copy(update={"subject": f"rank {rank}"}) for rank in range(3)]
    shown = assert_sound(render(report(result("dataloader", Outcome.FAIL, *each))).decode()).said
    assert sum("dataloader.supply [rank" in said for said in shown) == 3
    assert shown.count(SUPPLY.remedy) == 1


def test_notes_and_output_are_there():
    shown = assert_sound(render(MIXED).decode()).text
    assert "note: PREFLIGHT_DAAT is not an option" in shown
    assert "waived, would be fail" in shown
    assert "UserWarning: <worker 3> said `|` & left" in shown


@many
@given(REPORT)
def test_whatever_text_a_machine_produces(drawn):
    assert_sound(render(drawn).decode())
