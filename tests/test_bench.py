"""The bench's pure parts: what counts as broken, what is compared, how starts are replayed."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from typing import Any

import pytest

from bench import __main__ as command_line
from bench import command, known_rate, replay, series, start_up, supply_ratio, table, verdict_time
from bench.replay import OVER, UNDER, Moment, Setup, Tally
from bench.table import Row
from preflight.facts import Load
from tests import making

MAIN, WORKER = 1, 2


# -- the table ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "ok"),
    [
        (Row("n", 10.0, at_most=10), True),
        (Row("n", 10.1, at_most=10), False),
        (Row("n", 0.97, at_least=0.97, at_most=1.03), True),
        (Row("n", 0.969, at_least=0.97, at_most=1.03), False),
        (Row("n", 1.031, at_least=0.97, at_most=1.03), False),
        (Row("n", 7.0), None),
        (Row("n", None, at_most=10), False),
        (Row("n", None), False),
    ],
)
def test_a_row_is_ok_within_its_bounds_and_broken_when_it_was_not_measured(
    row: Row, ok: bool | None
) -> None:
    assert row.ok is ok


def test_only_missed_bounds_count_as_broken() -> None:
    assert table.broken([Row("a", 1, at_most=2), Row("b", 3, at_most=2), Row("c", 9)]) == 1


def test_a_line_names_number_bound_value_verdict_and_note() -> None:
    line = table.line(Row("help", 0.41234, "s", at_most=0.3, note="median of 15"))
    assert line.split() == ["help", "<=", "0.3", "s", "0.4123", "s", "NO", "median", "of", "15"]
    assert table.line(Row("help", 0.2, "s", at_most=0.3)).endswith("yes")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (Row("n", 1, "s", at_most=30), "<= 30 s"),
        (Row("n", 1, "s", at_least=30), ">= 30 s"),
        (Row("n", 1, at_least=0.97, at_most=1.03), "0.97 to 1.03"),
        (Row("n", 1), ""),
    ],
)
def test_bounds_in_words(row: Row, words: str) -> None:
    assert table.bound(row) == words


def test_one_odd_turn_does_not_move_the_ratio() -> None:
    assert table.ratio_of_medians([99, 100, 500], [100, 3, 101]) == pytest.approx(1.0)
    assert table.ratio_of_medians([50, 50, 50], [100, 100, 100]) == 0.5


def test_a_measurement_that_raises_is_a_broken_row_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raising(repeat: int) -> list[Row]:
        raise RuntimeError("no report")

    monkeypatch.setattr(series, "measure", raising)
    (row,) = command_line.measured("series", 1)
    assert row.ok is False and "no report" in row.note


# -- the command's runs -------------------------------------------------------------------------


def ran(**reading: Any) -> command.Ran:
    usual = {"window_s": 2.5, "supply_samples_per_s": {"value": 300.0}, "decision": None}
    report = {
        "settings": {"values": {"stats.warmup_s": {"value": 1.0}}},
        "results": [
            {"check": "shm", "reading": {}},
            {"check": "dataloader", "duration_s": 6.5, "reading": {**usual, **reading}},
        ],
    }
    return command.Ran(wall_s=8.0, peak_mb=40.0, report=report)


def test_outside_is_the_wall_without_window_and_warm_up() -> None:
    assert ran().outside_s == pytest.approx(8.0 - 2.5 - 1.0)


def test_the_verdict_of_a_run_without_a_decision_is_none() -> None:
    assert ran().verdict == "none"
    assert ran(decision={"verdict": "missed"}).verdict == "missed"


def test_a_verdict_is_timed_only_when_every_run_came_to_it() -> None:
    missed, open_ = ran(decision={"verdict": "missed"}), ran(decision={"verdict": "undecided"})
    assert verdict_time.row("fail", [missed, missed], "missed", 10).seen == 6.5
    row = verdict_time.row("fail", [missed, open_], "missed", 10)
    assert row.ok is False and "undecided" in row.note


def test_the_peak_is_the_process_own_high_water_mark() -> None:
    status = "Name:\tpreflight\nVmPeak:\t  999999 kB\nVmHWM:\t   40888 kB\nVmRSS:\t   39000 kB\n"
    assert command.peak_kib(status) == 40888
    assert command.peak_kib("Name:\tpreflight\nState:\tZ (zombie)\n") == 0


def test_no_option_of_the_caller_reaches_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFLIGHT_SET", "stats.max_s=1")
    assert "PREFLIGHT_SET" not in command.environment()
    assert "PATH" in command.environment()


def test_heavy_modules_are_found_by_their_own_name_only() -> None:
    times = (
        "import time:       162 |       1620 | preflight.torch_free\n"
        "import time:       162 |        162 |   numpy.core\n"
        "import time:       200 |        400 |     torch\n"
    )
    assert start_up.heavy_imports(times) == ["torch"]


# -- rates --------------------------------------------------------------------------------------


def test_reported_rate_is_over_the_mean_of_seconds_per_sample() -> None:
    blocks = [{"dt_s": 1.0, "samples": 100}, {"dt_s": 1.0, "samples": 50}]
    assert supply_ratio.reported(blocks) == pytest.approx(1 / 0.015)
    assert supply_ratio.counted(blocks) == pytest.approx(75)


SIMULATED = """\
series     CV   neighbour  true  wrong%  bound%  reached% missed% close% open% blocks
iid        0.05 no          +5%    0.00    0.50      99.6     0.0    0.4   0.0      8
lag-1 0.8  0.20 yes         +5%    0.60    0.50      30.0     0.6   34.0  35.4     40  BROKEN
lag-1 0.8  0.20 yes        -15%    0.00    1.00       0.0    18.0    0.0  82.0     50
72 cases of 50 runs, 1 bounds broken
"""


def test_the_simulated_table_is_read_from_its_right_end() -> None:
    first, second, third = series.parse(SIMULATED)
    assert first == series.Case("+5%", 0.0, 0.5, 0.4, 0.0, 8)
    assert (second.wrong, second.close, second.open, second.blocks) == (0.6, 34.0, 35.4, 40)
    assert (third.true, third.bound) == ("-15%", 1.0)


def test_the_worst_series_is_held_against_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulated(*arguments: Any, **options: Any) -> Any:
        return type("Ran", (), {"stdout": SIMULATED, "returncode": 1})

    monkeypatch.setattr(subprocess, "run", simulated)
    near, far = series.measure(1)
    assert (near.seen, near.at_most, near.ok) == (0.6, 0.5, False)
    assert (far.seen, far.at_most, far.ok) == (0.0, 1.0, True)


# -- replayed starts ----------------------------------------------------------------------------


def setup() -> Setup:
    job = making.job(num_workers=1)
    stats = job.stats.model_copy(update={"max_s": 6.0})
    cpu = making.facts().cpu.model_copy(update={"affinity": 1, "effective": 1.0})
    return Setup(job.model_copy(update={"stats": stats}), cpu, MAIN)


def moments(seconds: float, per_block: int = 100, foreign: float = 0.0) -> list[Moment]:
    """A steady loader, looked at every 0.25 s, beside somebody who takes a share of the CPU."""
    return [
        Moment(
            finished=1000 + n * per_block,
            batches=20 + n * per_block // 64,
            load=Load(
                at_s=50 + n / 4,
                busy_s=n / 4,
                steal_s=0.0,
                own_cpu_s=n / 4 * (1 - foreign),
                run_delay_s={MAIN: 0.0, WORKER: n / 4 * foreign},
            ),
        )
        for n in range(int(seconds * 4) + 1)
    ]


def test_the_rate_of_a_recording() -> None:
    assert replay.rate(moments(5)) == pytest.approx(400)


def test_the_disturbed_share_of_a_recording() -> None:
    assert replay.disturbed_share(moments(5), setup()) == 0
    assert replay.disturbed_share(moments(5, foreign=0.4), setup()) == pytest.approx(0.4)


def test_the_truth_is_the_mean_of_quiet_references_that_agree() -> None:
    assert replay.truth(moments(5), moments(5, 101), setup()) == pytest.approx(402)
    assert replay.truth(moments(5), moments(5, 104), setup()) is None
    assert replay.truth(moments(5), moments(5, foreign=0.4), setup()) is None


def test_every_start_with_a_whole_window_after_it_gets_both_verdicts() -> None:
    tally = Tally()
    replay.replay(moments(9.5), setup(), 400, tally)  # 1 + 6 + 2 x 0.25 s: starts from 0 to 2 s
    assert tally.verdicts[UNDER] == {"reached": 9}
    assert tally.verdicts[OVER] == {"missed": 9}
    assert (tally.wrong(), tally.starts(), len(tally.blocks)) == (0, 18, 18)


def test_a_misplaced_truth_makes_wrong_verdicts() -> None:
    low, high = Tally(), Tally()
    replay.replay(moments(8), setup(), 800, high)
    replay.replay(moments(8), setup(), 200, low)
    assert high.wrong() == high.verdicts[UNDER]["missed"] > 0
    assert low.wrong() == low.verdicts[OVER]["reached"] > 0


def test_a_recording_too_short_for_one_start_gives_none() -> None:
    tally = Tally()
    replay.replay(moments(7), setup(), 400, tally)
    assert tally.starts() == 0


# -- known rates --------------------------------------------------------------------------------


class ScriptedRecorder:
    """Gives these recordings in turn; a longer one than a reference is the cell's."""

    def __init__(self, *per_block: int) -> None:
        self._per_block = list(per_block)

    def record(self, seconds: float) -> list[Moment]:
        return moments(seconds, self._per_block.pop(0))


def recorded(*per_block: int, cells: int = 1) -> list[known_rate.Cell]:
    made = [known_rate.Cell(nullcontext, 8.0) for _ in range(cells)]
    known_rate._record(ScriptedRecorder(*per_block), setup(), made)  # type: ignore[arg-type]
    return made


def test_a_recording_between_agreeing_references_counts() -> None:
    (cell,) = recorded(100, 100, 101)
    assert cell.truths == [pytest.approx(402)] and cell.void == 0
    row = known_rate.row("cell", cell, 0.25)
    assert row.seen == 0 and row.ok and row.unit == "of 6"
    assert "limit -15 %: reached 3; +15 %: missed 3" in row.note


def test_a_recording_between_differing_references_is_made_once_more() -> None:
    (cell,) = recorded(90, 100, 100, 100, 100)
    assert cell.void == 1 and cell.truths == [pytest.approx(400)]
    assert "1 recordings void" in known_rate.row("cell", cell, 0.25).note


def test_only_one_recording_of_a_loader_is_made_again() -> None:
    first, second = recorded(90, 100, 100, 100, 100, 100, 90, cells=2)
    assert (first.void, len(first.truths)) == (1, 1)
    assert (second.void, len(second.truths)) == (1, 0)


def test_without_quiet_references_there_is_no_number() -> None:
    (cell,) = recorded(90, 100, 100, 100, 90)
    row = known_rate.row("cell", cell, 0.25)
    assert row.seen is None and row.ok is False and "2 recordings void" in row.note


def test_wrong_verdicts_break_the_bound() -> None:
    (cell,) = recorded(100, 70, 100)
    row = known_rate.row("cell", cell, 0.25)
    assert row.ok is False and row.seen == 3


def test_more_undecided_verdicts_than_are_allowed_break_the_bound() -> None:
    (cell,) = recorded(100, 100, 101)
    assert known_rate.undecided("cell", cell).ok is True
    cell.tally.verdicts[UNDER]["undecided"] += 1
    row = known_rate.undecided("cell", cell)
    assert row.ok is False and row.seen == pytest.approx(100 / 7)
    assert known_rate.undecided("cell", recorded(90, 100, 100, 100, 90)[0]).seen is None


def test_known_rates_are_judged_as_shipped_but_for_the_loaders_size() -> None:
    job = known_rate.setup_of(3).job
    shipped = making.settings("cpu")
    assert (job.num_workers, job.loader.batch_size) == (3, 16)
    assert job.stats == shipped.stats
