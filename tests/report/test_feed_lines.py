import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model import Finding
from preflight.outcome import Outcome
from preflight.report.feed_lines import feed_lines
from preflight.report.lines import laid_out

from .feed_reports import (
    BUDGET,
    FOUR_RANKS,
    HOST_ONLY,
    LOOP,
    NO_DEMAND,
    QUOTA,
    RECOMMENDED,
    STAGES,
    TOUCHED,
    WAITING,
    WHAT_IF,
    loader,
    rate,
    seen,
    stage,
    supply,
)
from .reports import INCOMPLETE, PASSING, report, result
from .test_any_text import VALUE, many


def lines(drawn, width=None):
    return laid_out(feed_lines(drawn), width)


def lines_of(*readings, outcome=Outcome.FAIL, others=()):
    """The lines of a loader that gave these readings, its ranks' in a list."""
    reading = readings[0] if len(readings) == 1 else list(readings)
    return lines(report(loader(outcome, reading), *others))


def ranks(count, of=None, **fields):
    return [
        seen(rank=index, ranks=of or count, supply_samples_per_s=rate(300.0 + 10 * index), **fields)
        for index in range(count)
    ]


def test_one_rank_with_its_stages():
    assert lines(HOST_ONLY) == [
        "feed   812 +- 22 samples/s of 2,790 needed (29 %): the GPU would wait 71 % of the time",
        "       storage first touch    9,800 /s",
        "       decode                   890 /s   <- limits: 2.46 ms of CPU a sample, "
        "2.25 of them decode",
        "       transport              5,100 /s",
        "       pinned copy           88,000 /s   (53.1 GB/s)",
        "limit  2,511 samples/s, 90 % of what is needed",
        "why    the loader workers used all of the 2.0-CPU quota",
        "fix    give the container at least 8 CPUs (it has a quota of 2.0 on a 64-CPU node)",
    ]


def test_long_lines_go_on_in_their_own_column():
    assert lines(HOST_ONLY, 80)[:6] == [
        "feed   812 +- 22 samples/s of 2,790 needed (29 %): the GPU would wait 71 % of",
        "       the time",
        "       storage first touch    9,800 /s",
        "       decode                   890 /s   <- limits: 2.46 ms of CPU a sample,",
        "                                         2.25 of them decode",
        "       transport              5,100 /s",
    ]
    assert "       of CPU a sample, 2.25 of them decode" in lines(HOST_ONLY, 60)


def test_a_node_supplies_its_ranks_times_the_slowest():
    assert lines(FOUR_RANKS)[:8] == [
        "feed   682 +- 27 samples/s of 2,800 needed (24 %): the GPUs would wait 76 % of the time",
        "ranks  rank 2   170 /s   <- slowest: the node's supply is 4 times this",
        "       rank 0   171 /s",
        "       rank 3   176 /s",
        "       rank 1   182 /s",
        "alone  640 /s a rank; with 4 ranks 170 (27 %)",
        "stage  fetch       9,800 /s a rank",
        "       decode        890 /s a rank   <- limits: 2.46 ms of CPU a sample, "
        "2.25 of them decode",
    ]
    assert "limit  630 samples/s a rank, 90 % of what is needed" in lines(FOUR_RANKS)


def test_of_many_ranks_eight_are_told_one_by_one():
    drawn = lines_of(*ranks(12))
    assert drawn[8:10] == ["       rank 7   370 /s", "       and 4 more between 380 and 410 /s"]
    assert not any("more between" in line for line in lines_of(*ranks(8)))


def test_a_rank_that_gave_no_rate_is_not_made_up():
    drawn = lines_of(*ranks(3, of=4), seen(rank=3, ranks=4, supply_samples_per_s=None))
    assert drawn[:3] == [
        "feed   300 +- 12 samples/s of 2,790 needed (11 %): the GPU would wait 89 % of the time",
        "       3 of 4 ranks gave a rate: this is the slowest of them, held against one rank's "
        "demand",
        "ranks  rank 0   300 /s",
    ]


def test_without_a_demand_there_is_the_floor():
    assert lines(NO_DEMAND) == ["feed   812 +- 32 samples/s (no demand known; floor 100)"]
    floor = {"demand_samples_per_s": None, "limit_samples_per_s": 100.0}
    assert lines_of(*ranks(2, **floor))[0] == (
        "feed   600 +- 24 samples/s (no demand known; floor 200)"
    )


def test_enough_is_not_waited_for():
    assert lines_of(seen(supply_samples_per_s=rate(4100.0)))[0].endswith(
        "of 2,790 needed (147 %): the GPU would not wait"
    )
    almost = lines_of(seen(supply_samples_per_s=rate(2789.9, 0.03)))[0]
    assert "2,789.9 +- 83.7 samples/s of 2,790 needed (over 99.9 %)" in almost
    assert almost.endswith("would wait under 0.1 % of the time")


def test_a_limit_that_is_the_demand_is_not_told_again():
    assert len(lines_of(seen(limit_samples_per_s=2790.0))) == 1


def test_a_paced_load_says_so():
    assert lines(LOOP)[1] == "       (held to 3,488/s to spare the file server)"
    assert "       (held to 500/s a rank to spare the file server)" in lines_of(
        *ranks(2, paced_samples_per_s=500.0)
    )


def fetch_line(note, *others):
    drawn = lines_of(seen(stages=[stage("fetch", 9800.0, note)]), others=others)
    return next(line.strip() for line in drawn if "9,800" in line)


def test_fetch_is_called_what_it_was():
    assert fetch_line(None) == "fetch   9,800 /s"
    assert fetch_line("first touch", TOUCHED) == "storage first touch   9,800 /s"
    assert fetch_line("page cache", TOUCHED) == "fetch   9,800 /s   (page cache)"
    assert fetch_line("unknown", TOUCHED) == "storage first touch   9,800 /s   (unknown)"


def decode_line(budget, note=None):
    fields = {"limiting_stage": "decode", "cpu_budget": budget}
    drawn = lines_of(seen(stages=[stage("decode", 890.0, note)], **fields))
    return next(line.strip() for line in drawn if "decode " in line)


def test_the_stage_that_limits_says_what_its_sample_costs():
    assert decode_line(None) == "decode   890 /s   <- limits"
    assert decode_line(None, "2.25 ms of CPU a sample") == (
        "decode   890 /s   (2.25 ms of CPU a sample)   <- limits"
    )
    assert decode_line(BUDGET, "2.25 ms of CPU a sample") == (
        "decode   890 /s   <- limits: 2.46 ms of CPU a sample, 2.25 of them decode"
    )
    assert decode_line({"getitem_ms": None, "collate_ms": 0.15, "main_ms": 0.06}) == (
        "decode   890 /s   <- limits: at least 0.21 ms of CPU a sample"
    )
    assert decode_line({"getitem_ms": 0.0213, "collate_ms": 0.002, "main_ms": 0.001}) == (
        "decode   890 /s   <- limits: 0.0243 ms of CPU a sample, 0.0213 of them decode"
    )


def test_where_no_stage_limits_the_budget_has_a_line_unless_all_is_well():
    whole = "       2.46 ms of CPU a sample: fetch and decode 2.25, collate 0.15, main process 0.06"
    assert whole in lines_of(seen(cpu_budget=BUDGET))
    assert whole in lines_of(seen(cpu_budget=BUDGET, stages=STAGES), outcome=Outcome.PASS)
    assert whole not in lines_of(seen(cpu_budget=BUDGET), outcome=Outcome.PASS)


def test_where_no_stage_limits_that_is_said_with_what_they_would_give():
    slow = [stage("decode", 484.0), stage("transport", 5647.0), stage("copy", 9000.0)]
    said = "       none of these limits: one after the other they give 446 /s"
    assert said in lines_of(seen(stages=slow, limiting_stage=None))
    assert said not in lines_of(seen(stages=slow, limiting_stage="decode"))
    assert not [line for line in lines_of(seen(stages=slow[2:])) if "none of these" in line]


def test_the_loop():
    assert (
        "loop   87.1 % utilisation measured, 88.3 % predicted; waits: 13 % of the steps, longest "
        "0.41 s; first batch 1.2 s; new epoch 0.3 s; with new workers 1.9 s; AU as MLPerf counts "
        "it 81.0 %"
    ) in lines(LOOP)


def test_of_several_loops_the_least_used_is_told():
    loops = [{"measured_utilisation_percent": used} for used in (91.0, 88.0, 90.0)]
    (line,) = lines(report(result("feed", Outcome.PASS, reading=loops)))
    assert line == "loop   88.0 % utilisation measured (the least of 3 ranks)"


def test_the_fix_is_that_of_the_worse_and_only_for_the_feed():
    assert lines(LOOP)[-1] == "fix    raise loader.num_workers to 16"
    corrupt = Finding(id="dataloader.corrupt_samples", outcome=Outcome.FAIL, remedy="replace them")
    reading = seen(stages=[])
    drawn = lines(report(loader(Outcome.FAIL, reading, corrupt)))
    assert not any(line.startswith("fix") for line in drawn)
    missed = supply(811.9, 2511.0, Outcome.FAIL, **QUOTA)
    assert lines(report(loader(Outcome.FAIL, reading, corrupt, missed)))[-1].startswith("fix    gi")


def test_what_other_settings_would_give():
    assert lines(WAITING, 80)[2:] == [
        "limit  540 samples/s, 90 % of what is needed",
        "what if 12 workers, prefetch 2: 579 +- 23 samples/s (now 2 workers: 135)",
        "       all data in memory: 640 samples/s, by its CPU time",
        "       what is needed takes at least 3 CPUs",
        "       persistent_workers=True saves up to 1.4 s in every epoch",
        "use    DataLoader(dataset, batch_size=256, num_workers=12, prefetch_factor=2,",
        "                  pin_memory=True, persistent_workers=True)",
        "why    the workers waited",
        "fix    set loader.num_workers to 12 (579 +- 23 samples/s when tried, 135 now)",
    ]


def what_if_of(best=RECOMMENDED, **changes):
    drawn = lines_of(seen(what_if=WHAT_IF | {"notes": []} | changes, recommended=best))
    return [line for line in drawn if line.startswith(("what if", "       "))]


def test_where_no_setting_is_faster_all_are_told():
    same = rate(140.0)
    best = {"num_workers": 2, "samples_per_s": same}
    trials = [{**trial, "samples_per_s": same} for trial in WHAT_IF["trials"][:3]]
    assert what_if_of(best, trials=trials, cached_samples_per_s=None, cpus_needed=1) == [
        "what if no other setting is clearly faster: 4 workers: 140, 8 workers: 140 samples/s "
        "(now 2 workers: 140)",
        "       what is needed takes at least 1 CPU",
    ]


def test_what_was_not_tried_has_its_reason():
    nothing = {"cached_samples_per_s": None, "cpus_needed": None}
    reason = "there was no time left for it"
    assert what_if_of(trials=[], reason=reason, **nothing) == [
        f"what if nothing was tried: {reason}"
    ]
    assert what_if_of(reason=reason, **nothing)[1] == f"       no more was tried: {reason}"


def test_of_several_ranks_each_has_so_much():
    drawn = lines_of(
        *ranks(2, what_if=None), seen(rank=2, ranks=3, what_if=WHAT_IF, recommended=RECOMMENDED)
    )
    told = next(line for line in drawn if line.startswith("what if"))
    assert "samples/s a rank (now" in told
    assert "       what is needed takes at least 3 CPUs for all ranks" in drawn


def test_nothing_measured_is_nothing_told():
    assert lines(INCOMPLETE) == [] and lines(PASSING) == []
    broken = supply(0.0, 2511.0, Outcome.FAIL, **QUOTA)
    assert lines(report(loader(Outcome.FAIL, seen(supply_samples_per_s=None), broken))) == []


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), True, "4", None, [], {}])
def test_what_is_not_a_number_counts_as_absent(odd):
    names = ["ranks", "rank", "demand_samples_per_s", "limit_samples_per_s", "cpu_budget"]
    names += [
        "paced_samples_per_s",
        "alone_samples_per_s",
        "stages",
        "limiting_stage",
        "what_if",
        "recommended",
    ]
    drawn = lines_of(seen(**dict.fromkeys(names, odd)), outcome=Outcome.PASS)
    assert drawn == ["feed   812 +- 32 samples/s (no demand known)"]


def test_a_rate_of_nothing_counts_as_absent():
    none = rate(1.0) | {"value": 0.0}
    assert lines_of(seen(supply_samples_per_s=none)) == []
    assert not any("alone" in line for line in lines_of(*ranks(2, alone_samples_per_s=none)))


ODD = st.one_of(VALUE, st.floats(), st.fixed_dictionaries({"value": st.floats(), "low": VALUE}))
KEYS = [*seen(), "alone_samples_per_s", "paced_samples_per_s", "measured_utilisation_percent"]
ODD_STAGES = st.lists(st.dictionaries(st.sampled_from(["name", "note", "samples_per_s"]), ODD))
ODD_WHAT_IF = st.dictionaries(st.sampled_from([*WHAT_IF]), ODD | ODD_STAGES)
READING = st.dictionaries(st.sampled_from([*KEYS, "what_if"]), ODD | ODD_STAGES | ODD_WHAT_IF)
LOADER = READING.map(lambda odd: seen(**odd)) | READING


@many
@given(LOADER | st.lists(LOADER, max_size=3) | VALUE, READING, st.integers(1, 120))
def test_an_odd_document_is_never_the_end_of_the_page(loaders, loop, width):
    drawn = report(
        loader(Outcome.FAIL, loaders), result("feed", Outcome.PASS, reading=loop), TOUCHED
    )
    assert all(isinstance(line, str) for line in lines(drawn, width))
