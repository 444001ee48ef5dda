import json
from pathlib import Path

import jsonschema
import pytest

import preflight.report
from preflight.report.json_report import parse, render, schema_text

from .reports import FAILING, MIXED, REPORTS, SHM, report, result

SCHEMA = Path(preflight.report.__file__).parent / "preflight.schema.json"
WRITE_SCHEMA = (
    'python -c "from preflight.report.json_report import schema_text as text; '
    'print(text(), end=str())" > preflight/report/preflight.schema.json'
)


@pytest.mark.parametrize("name", REPORTS)
def test_round_trip_and_schema(name):
    drawn = render(REPORTS[name]).decode()
    assert parse(drawn) == REPORTS[name]
    jsonschema.validate(json.loads(drawn), json.loads(SCHEMA.read_text()))


def test_the_published_schema_is_the_models():
    assert json.loads(SCHEMA.read_text()) == json.loads(schema_text()), WRITE_SCHEMA


@pytest.mark.parametrize("key", ["reason", "findings", "duration_s"])
def test_the_schema_wants_every_stable_key(key):
    document = json.loads(render(FAILING))
    del document["results"][0][key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))


def test_the_keys_of_a_finding_are_stable():
    (shm,) = json.loads(render(FAILING))["results"][1]["findings"]
    assert list(shm) == [
        "id", "outcome", "would_be", "waived", "subject", "observed", "comparison", "limit",
        "unit", "source", "cause", "cause_id", "remedy", "blame",
    ]  # fmt: skip


def test_output_is_absent_where_there_is_none():
    assert ["output" in shown for shown in json.loads(render(MIXED))["results"]] == [
        False, False, False, False, True
    ]  # fmt: skip


def test_values_that_json_does_not_know_become_null_and_surrogates_are_spelt_out():
    reading = {"rate": float("nan"), "all": [float("inf"), 1.5, ("-inf", float("-inf"))],
               "path": Path("/a\udcff")}  # fmt: skip
    odd = report(result("shm", SHM.outcome, SHM, reading=reading), facts={"na\udcffme": "a\udc80b"})
    document = json.loads(render(odd), parse_constant=pytest.fail)
    assert document["results"][0]["reading"] == {
        "rate": None, "all": [None, 1.5, ["-inf", None]], "path": "/a\\udcff"
    }  # fmt: skip
    assert document["facts"] == {"na\\udcffme": "a\\udc80b"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema_version": "2.0", "preflight_version": "9.1"},
         "schema_version '2.0', this preflight reads '1.0': use the preflight that wrote it (9.1)"),
        ({"outcome": "maybe"}, "not a preflight report: outcome: Input should be 'pass'"),
        ({"unheard_of": 1}, "not a preflight report: unheard_of: "),
    ],
)  # fmt: skip
def test_parse_refuses_another_document(change, sentence):
    document = json.loads(render(FAILING)) | change
    with pytest.raises(ValueError) as refused:
        parse(json.dumps(document))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "null", '{"schema_version": NaN}', "[" * 100_000, "\ufeff{}"]
)
def test_parse_refuses_what_is_no_report(text):
    with pytest.raises(ValueError, match=r"^not a preflight report: "):
        parse(text)
