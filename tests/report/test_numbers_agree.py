"""Supply, demand, ratio and prediction: the same in every format, and those of the document."""

import json
import re
from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from preflight.outcome import Outcome
from preflight.report import FORMATS

from .feed_reports import loader, rate, seen
from .reports import report, result
from .test_any_text import many

FEED = re.compile(
    r"feed +(?P<supply>[\d,.]+) \+- [\d,.]+ samples/s of (?P<demand>[\d,.]+) needed "
    r"\((?P<share>[^)]*)\): the GPUs? would (?P<waits>not wait|wait .* % of the time)"
)
LOOP = re.compile(r"loop +(?P<used>[\d.]+) % utilisation measured, (?P<predicted>[\d.]+) % pred")
LIMIT = re.compile(r"limit +(?P<limit>[\d,.]+) samples/s( a rank)?, 90 % of what is needed")
BOUNDS = {
    "under 0.1 %": (0, 0.1), "over 99.9 %": (99.9, 100), "over 10 times": (999.5, float("inf")),
}  # fmt: skip


def number(text):
    return float(text.replace(",", ""))


def near(text, value):
    """Whether the number is the value, rounded to at least three digits."""
    return abs(number(text) - value) <= 0.00501 * value


def bounds(percent):
    """What a percentage as it is printed stands for."""
    if percent in BOUNDS:
        return BOUNDS[percent]
    digits = percent.removesuffix(" %")
    half = 0.05 if "." in digits else 0.5
    return number(digits) - half - 1e-9, number(digits) + half + 1e-9


def texts(drawn):
    """The lines of the feed as a reader of each format gets them."""
    table = FORMATS["table"](drawn, width=100).decode()
    yield table
    yield FORMATS["markdown"](drawn).decode().split("```")[1]
    suite = ElementTree.fromstring(FORMATS["junit"](drawn))
    yield "\n".join(case.findtext("system-out") or "" for case in suite.iter("testcase"))


SUPPLY = st.floats(0.5, 1e5)
RATIO = st.floats(1e-4, 20) | st.floats(0.98, 1.02) | st.floats(0, 1).map(lambda x: 1 - x / 1000)


@many
@given(st.lists(SUPPLY, min_size=1, max_size=10), RATIO.filter(bool))
@example([2789.9], 1 - 1e-5)
@example([995.0], 0.995)
@example([1000.0], 1.0)
@example([812.5, 811.9], 0.005)
def test_every_format_says_what_the_document_says(supplies, ratio):
    demand = min(supplies) / ratio
    loaders = [
        seen(
            rank=index, ranks=len(supplies), supply_samples_per_s=rate(supply),
            demand_samples_per_s=demand, limit_samples_per_s=0.9 * demand,
            feed_ratio=round(supply / demand, 4),
            predicted_utilisation_percent=round(100 * min(1, supply / demand), 2),
        )
        for index, supply in enumerate(supplies)
    ]  # fmt: skip
    predicted = min(one["predicted_utilisation_percent"] for one in loaders)
    loop = {"predicted_utilisation_percent": predicted, "measured_utilisation_percent": 50.0}
    drawn = report(
        loader(Outcome.PASS, loaders if len(loaders) > 1 else loaders[0]),
        result("feed", Outcome.PASS, reading=loop),
    )
    document = json.loads(FORMATS["json"](drawn))["results"]
    record = document[0]["reading"]
    each = record if isinstance(record, list) else [record]
    slowest = min(each, key=lambda one: one["supply_samples_per_s"]["value"])
    shown = [FEED.search(" ".join(text.split())) for text in texts(drawn)]
    first = shown[0].groupdict()
    assert all(match.groupdict() == first for match in shown)

    assert near(first["supply"], len(each) * slowest["supply_samples_per_s"]["value"])
    assert near(first["demand"], len(each) * slowest["demand_samples_per_s"])
    low, high = bounds(first["share"])
    assert low - 0.005 <= 100 * slowest["feed_ratio"] <= high + 0.005
    waited = re.sub("^wait | of the time$", "", first["waits"])
    low_waited, high_waited = (0.0, 0.0) if waited == "not wait" else bounds(waited)
    predicted = slowest["predicted_utilisation_percent"]
    assert low_waited - 0.005 <= 100 - predicted <= high_waited + 0.005
    if "%" in waited and waited not in BOUNDS:
        assert number(first["share"][:-2]) + number(waited[:-2]) == 100
        assert 0 < number(waited[:-2]) < 100
    if waited != "not wait":
        assert first["supply"] != first["demand"]

    for text in texts(drawn):
        told = LOOP.search(" ".join(text.split()))
        assert abs(float(told["predicted"]) - predicted) <= 0.0501
        assert near(LIMIT.search(" ".join(text.split()))["limit"], slowest["limit_samples_per_s"])
