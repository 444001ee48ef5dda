"""Whatever text and numbers a machine produces, no format breaks and no record changes."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from preflight.model import Finding, Node, Report, Result, Setting, SettingsRecord
from preflight.outcome import Blame, Outcome
from preflight.report import FORMATS
from preflight.report.headline import headline
from preflight.report.json_report import parse

from .reading_junit import outcome, read

BAD = [
    "\x00", "\x1b[31m", "\x1b]0;t\x07", "\x1b", "\x9b2J", "\r", "\r\n", "\t", "\x0b", "\x85",
    "\ud800", "\udcff", "\ufffe", "\uffff", "\u2028", "\u202e", "]]>", "<!--", "&#0;", "[/bold]",
    "[rank 0]", ":smile:", "|", "```", "<script>", "\\", " ", "**", "\U0001fffe", "日本", "e\u0301",
]  # fmt: skip
TEXT = st.lists(st.one_of(st.sampled_from(BAD), st.text(max_size=6)), max_size=4).map("".join)
SURROGATE = st.characters(categories=["Cs"])
ANY_TEXT = st.one_of(TEXT, st.tuples(TEXT, SURROGATE).map("".join))
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
INTEGER = st.integers(-(2**63), 2**63)
SCALAR = st.one_of(st.none(), st.booleans(), INTEGER, NUMBER, ANY_TEXT)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ANY_TEXT, inner, max_size=2),
    max_leaves=4,
)
OUTCOME = st.sampled_from(Outcome)


def maybe(strategy):
    return st.none() | strategy


RATE = st.fixed_dictionaries(
    {"value": NUMBER, "low": maybe(NUMBER), "high": maybe(NUMBER), "unit": ANY_TEXT}
)
FINDING = st.builds(
    Finding, id=ANY_TEXT, outcome=OUTCOME, would_be=maybe(OUTCOME), waived=st.booleans(),
    subject=maybe(ANY_TEXT), observed=SCALAR, limit=SCALAR, unit=maybe(ANY_TEXT),
    comparison=maybe(st.sampled_from(["at_least", "at_most", "equals"])),
    source=maybe(ANY_TEXT), cause=maybe(ANY_TEXT), remedy=maybe(ANY_TEXT),
    blame=maybe(st.sampled_from(Blame)),
)  # fmt: skip
RESULT = st.builds(
    Result, check=ANY_TEXT, outcome=OUTCOME, required=st.booleans(), reason=maybe(ANY_TEXT),
    duration_s=NUMBER, partial=st.booleans(), findings=st.lists(FINDING, max_size=3).map(tuple),
    reading=VALUE | st.dictionaries(ANY_TEXT, RATE, max_size=2), output=maybe(ANY_TEXT),
)  # fmt: skip
SETTINGS = st.builds(
    SettingsRecord,
    layers=st.lists(ANY_TEXT, max_size=2).map(tuple),
    warnings=st.lists(ANY_TEXT, max_size=2).map(tuple),
    options=st.fixed_dictionaries(
        {},
        optional={
            "report_only": st.booleans(), "allow_undecided": st.booleans(),
            "exit_on": st.sampled_from(["any", "node"]), "data": maybe(ANY_TEXT),
            "skip": st.lists(ANY_TEXT, max_size=2), "waive": st.lists(ANY_TEXT, max_size=2),
        },
    ),
    values=st.dictionaries(
        ANY_TEXT, st.builds(Setting, value=SCALAR, from_=ANY_TEXT, source=maybe(ANY_TEXT)),
        max_size=1,
    ),
)  # fmt: skip
REPORT = st.builds(
    Report, preflight_version=ANY_TEXT, complete=st.booleans(), outcome=OUTCOME,
    exit_code=st.sampled_from([0, 1, 2, 3, 130, 143]), reason=maybe(ANY_TEXT),
    started_at=st.just("2027-01-15T03:12:44Z") | ANY_TEXT, duration_s=NUMBER,
    node=st.builds(Node, name=ANY_TEXT, name_from=ANY_TEXT, hostname=ANY_TEXT),
    facts=st.dictionaries(ANY_TEXT, VALUE, max_size=1), settings=SETTINGS,
    results=st.lists(RESULT, max_size=3).map(tuple),
)  # fmt: skip

many = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@many
@given(REPORT)
def test_junit_is_read_by_both_parsers_and_says_no_better_than_the_report(drawn):
    (suite,) = read(FORMATS["junit"](drawn))
    findings = [finding.outcome for shown in drawn.results for finding in shown.findings]
    seen = [outcome(case) for case in suite]
    assert seen.count("fail") >= findings.count(Outcome.FAIL)
    assert seen.count("skip") >= findings.count(Outcome.SKIP)
    red = seen.count("fail") + seen.count("error")
    assert red or (drawn.complete and drawn.exit_code == 0)


@many
@given(REPORT)
def test_json_gives_the_same_report_back(drawn):
    document = FORMATS["json"](drawn).decode()
    again = parse(document)
    assert FORMATS["json"](again).decode() == document
    if "\\ud" not in repr(drawn):  # a lone surrogate, or its name
        assert again == drawn


@many
@given(REPORT, st.integers(20, 200), st.booleans())
def test_table_and_markdown_and_headline_never_raise(drawn, width, color):
    page = FORMATS["table"](drawn, width=width, color=color).decode()
    summary = FORMATS["markdown"](drawn).decode()
    line = headline(drawn)
    assert summary.startswith("### ")
    assert "\n" not in line
    for text in (summary, line, page if not color else ""):
        assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in text)


@many
@given(REPORT)
def test_markdown_shows_the_words_and_nothing_else(drawn):
    tokens = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .parse(FORMATS["markdown"](drawn).decode())
    )
    assert tokens[0].type == "heading_open"
    assert {child.type for child in tokens[1].children} == {"text"}
    assert "".join(child.content for child in tokens[1].children) == headline(drawn)
    cells = [token for token in tokens if token.type == "td_open"]
    assert len(cells) == 4 * len(drawn.results)
    html = [token.content for token in tokens if token.type == "html_block"]
    html += [c.content for t in tokens for c in t.children or () if c.type == "html_inline"]
    assert {re.sub(r"that .* printed", "", tag) for tag in html} <= {
        "<sub>", "</sub>", "</details>\n", "<details><summary>last lines </summary>\n"
    }  # fmt: skip
    kinds = {child.type for token in tokens for child in token.children or ()}
    assert not kinds & {"link_open", "image", "code_inline", "em_open", "s_open"}
