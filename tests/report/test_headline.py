import pytest

from preflight.model import Finding, Node
from preflight.outcome import Blame, Outcome
from preflight.report.headline import closing, headline

from .feed_reports import FOUR_RANKS, TOUCHED
from .reports import (
    FAILING,
    INCOMPLETE,
    INTERRUPTED,
    MIXED,
    PASSING,
    SHM,
    SUPPLY,
    USAGE,
    report,
    result,
    settings,
)

FAIL = result("dataloader", Outcome.FAIL, SUPPLY)


def loader(data):
    """A pass of a check that measured the supply, from a data path or without one."""
    reading = {"supply_samples_per_s": {"value": 3000.0, "unit": "samples/s"}, "data": data}
    return result("dataloader", Outcome.PASS, SHM, reading=reading)


def several(*data):
    """A pass with a reading of each rank."""
    return loader(None).model_copy(update={"reading": [loader(one).reading for one in data]})


WARM = TOUCHED.model_copy(update={"reading": TOUCHED.reading | {"first_touch_samples_per_s": None}})
SKIPPED = result("gpus", Outcome.SKIP, reason="no GPU here")


@pytest.mark.parametrize(
    ("drawn", "line"),
    [
        (
            FAILING,
            "FAIL node gpu-b17: dataloader: 812 samples/s of 2,511 needed; "
            "give the container 7 CPUs",
        ),
        (PASSING, "PASS node gpu-b17 (supply not measured, storage not measured)"),
        (report(loader(data=None)), "PASS node gpu-b17 (storage not measured)"),
        (report(loader(data="/data")), "PASS node gpu-b17"),
        (report(TOUCHED, loader(data=None)), "PASS node gpu-b17"),
        (report(WARM, loader(data=None)), "PASS node gpu-b17 (storage not measured)"),
        (report(several(None, "/data")), "PASS node gpu-b17"),
        (report(several(None, None)), "PASS node gpu-b17 (storage not measured)"),
        (INCOMPLETE, "INCOMPLETE node gpu-b17 (exit code 3): still running: dataloader"),
        (
            INTERRUPTED,
            "INTERRUPTED node gpu-b17 (exit code 130): interrupted (SIGINT) before dataloader",
        ),
    ],
)
def test_headline(drawn, line):
    assert headline(drawn) == line


def test_usage():
    assert headline(USAGE).startswith("NOT MEASURED node gpu-b17 (exit code 2): site.yaml:3: ")


def test_a_code_that_an_option_changed_is_named_before_the_reason():
    assert headline(MIXED)[:80].startswith(
        "UNDECIDED node gpu-b17 (exit code 0 by --allow-undecided): dataloader: "
    )
    shown = FAILING.model_copy(update={"exit_code": 0, "settings": settings(report_only=True)})
    assert headline(shown).startswith("FAIL node gpu-b17 (exit code 0 by --report-only): dataload")


def test_a_fail_that_does_not_blame_the_node_says_why_it_is_a_three():
    shown = FAILING.model_copy(update={"exit_code": 3, "settings": settings(exit_on="node")})
    assert headline(shown).startswith("FAIL node gpu-b17 (exit code 3: no fail blames the node): ")


def test_warnings_are_counted():
    warned = result("shm", Outcome.WARN, SHM.model_copy(update={"outcome": Outcome.WARN}))
    assert headline(report(warned, outcome=Outcome.WARN)).startswith(
        "PASS node gpu-b17 (1 warning, supply not measured, storage not measured): shm: "
    )


def test_a_run_of_skips_and_waivers_is_never_a_pass():
    waived = SHM.model_copy(
        update={"outcome": Outcome.WARN, "waived": True, "would_be": Outcome.FAIL, "observed": 0.06}
    )
    results = SKIPPED, result("shm", Outcome.WARN, waived)
    assert headline(report(*results, outcome=Outcome.WARN, exit_code=3)) == (
        "UNDECIDED node gpu-b17: nothing was judged; shm: 0.06 GiB of 0.1122 needed"
    )
    by_option = {"exit_code": 0, "settings": settings(report_only=True)}
    assert headline(report(*results, outcome=Outcome.WARN, **by_option)).startswith(
        "UNDECIDED node gpu-b17 (exit code 0 by --report-only): nothing was judged; "
    )
    assert headline(report(SKIPPED, outcome=Outcome.SKIP, exit_code=3)) == (
        "UNDECIDED node gpu-b17: nothing was judged; gpus: no GPU here"
    )


def test_the_worst_result_gives_the_reason_that_a_report_does_not_bring():
    error = result("shm", Outcome.ERROR, reason="no answer")
    assert headline(report(error, FAIL, outcome=Outcome.FAIL, exit_code=1)).startswith(
        "FAIL node gpu-b17: dataloader: 812 samples/s of 2,511 needed"
    )


def test_a_miss_that_kept_others_from_running_comes_before_a_later_one():
    driver = Finding(
        id="driver_cuda.present", outcome=Outcome.FAIL, blame=Blame.SETUP,
        cause="no libcuda.so.1 here", remedy="start it with --gpus all (or: ask for a GPU); or",
    )  # fmt: skip
    blocked = result("gpus", Outcome.SKIP, reason="needs driver_cuda, which did not pass")
    shown = report(
        result("driver_cuda", Outcome.FAIL, driver),
        blocked.model_copy(update={"blocked_by": "driver_cuda"}),
        FAIL, outcome=Outcome.FAIL, exit_code=1,
    )  # fmt: skip
    assert headline(shown) == (
        "FAIL node gpu-b17: driver_cuda: no libcuda.so.1 here; start it with --gpus all"
    )


def test_a_broken_node_comes_before_a_later_miss_that_somebody_else_made():
    lost = Finding(id="gpus.lost", outcome=Outcome.FAIL, cause="GPU 3 is gone", blame=Blame.NODE)
    shown = report(result("gpus", Outcome.FAIL, lost), FAIL, outcome=Outcome.FAIL, exit_code=1)
    assert headline(shown) == "FAIL node gpu-b17: gpus: GPU 3 is gone"


def test_a_remedy_that_the_reason_holds_already_is_not_said_twice():
    same = Finding(id="a.b", outcome=Outcome.FAIL, remedy="do it", blame=Blame.SETUP)
    shown = report(result("a", Outcome.FAIL, same), outcome=Outcome.FAIL, exit_code=1)
    assert headline(shown) == "FAIL node gpu-b17: a: do it"


def test_an_interrupted_run_that_was_cut_off_says_both():
    shown = INTERRUPTED.model_copy(update={"complete": False})
    assert headline(shown).startswith("INCOMPLETE node gpu-b17 (exit code 130): interrupted")


def test_the_verdict_comes_within_80_characters_however_long_the_names_are():
    node = Node(name="ip-10-0-1-23\n" + "x" * 250, name_from="NODE_NAME", hostname="h")
    shown = FAILING.model_copy(update={"node": node, "reason": "a\x1b[2J\nb" + "c" * 500})
    line = headline(shown)
    assert line[:59].startswith("FAIL node ip-10-0-1-23 xxx")
    assert line[50:].startswith("...: a b" + "c" * 500) or "...: a bccc" in line[:80]
    assert "\n" not in line and "\x1b" not in line


def test_closing_names_the_options_that_changed_the_run():
    shown = report(
        settings=settings(report_only=True, exit_on="node", skip=["shm"], check=["gpus"]),
        exit_code=0,
    )
    assert closing(shown) == (
        "preflight 0.1.0 | 2027-01-15T03:12:44Z | 13.9 s | exit code 0 | thresholds default.yaml, "
        "cpu.yaml | --report-only --check gpus --skip shm --exit-on node"
    )


def test_a_fail_that_blames_the_node_is_a_plain_one():
    node = Finding(id="driver_cuda.init", outcome=Outcome.FAIL, observed="999", blame=Blame.NODE,
                   cause="the driver does not start")  # fmt: skip
    shown = report(
        result("driver_cuda", Outcome.FAIL, node), outcome=Outcome.FAIL, exit_code=1,
        settings=settings(exit_on="node"),
    )  # fmt: skip
    assert headline(shown) == "FAIL node gpu-b17: driver_cuda: 999: the driver does not start"


def test_of_several_ranks_the_slowest_speaks():
    assert headline(FOUR_RANKS).startswith("FAIL node gpu-b17: dataloader: 170 samples/s of 630 n")


def test_a_miss_on_one_gpu_names_it():
    slow = Finding(
        id="pinned_copy.h2d_fraction", outcome=Outcome.FAIL, subject="GPU 5", observed=12.0,
        comparison="at_least", limit=40.8, unit="GB/s", cause="slow", remedy="reseat it",
        blame=Blame.NODE,
    )  # fmt: skip
    shown = report(result("pinned_copy", Outcome.FAIL, slow), outcome=Outcome.FAIL, exit_code=1)
    assert headline(shown) == (
        "FAIL node gpu-b17: pinned_copy [GPU 5]: 12 GB/s of 40.8 needed; reseat it"
    )
