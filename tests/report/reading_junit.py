"""The independent readers that every JUnit document of ours has to satisfy."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import junitparser
from lxml import etree

SUBSET = etree.XMLSchema(etree.parse(Path(__file__).parent.parent / "junit_safe_subset.xsd"))


def read(document: bytes) -> junitparser.JUnitXml:
    """The document as junitparser (on lxml) reads it; the schema and ElementTree agree."""
    SUBSET.assertValid(etree.fromstring(document))
    cases = len(list(ElementTree.fromstring(document).iter("testcase")))
    parsed = junitparser.JUnitXml.fromstring(document)
    assert sum(len(suite) for suite in parsed) == cases == parsed.tests
    return parsed


def outcome(case: junitparser.TestCase) -> str:
    """fail, error, skip or pass, as a reader of JUnit sees it."""
    words = {junitparser.Failure: "fail", junitparser.Error: "error", junitparser.Skipped: "skip"}
    (word,) = [words[type(entry)] for entry in case.result] or ["pass"]
    return word
