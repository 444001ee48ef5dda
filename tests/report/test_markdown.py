import re

from preflight.model import SettingsRecord
from preflight.outcome import Outcome
from preflight.report.markdown import render

from .feed_reports import ALL_REPORTS
from .reports import FAILING, SUPPLY, report, result

HOSTILE = "a|b `c` <img src=x> [l](http://x) **d** _e_ &amp; $f$ ~~g~~ \\\n| h |\n# i"


def draw(*results, **changes):
    return render(report(*results, **changes)).decode()


def test_every_row_of_the_table_has_four_cells():
    for drawn in [*ALL_REPORTS.values(), hostile()]:
        rows = [line for line in render(drawn).decode().split("\n") if line.startswith("|")]
        assert len(rows) == (len(drawn.results) + 2 if drawn.results else 0)
        assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in rows), rows


def hostile():
    finding = SUPPLY.model_copy(
        update={"id": f"dataloader.{HOSTILE}", "subject": HOSTILE, "unit": HOSTILE,
                "cause": f"because {HOSTILE}", "remedy": HOSTILE, "source": HOSTILE}
    )  # fmt: skip
    return report(
        result(HOSTILE, Outcome.FAIL, finding), outcome=Outcome.FAIL, exit_code=1, reason=HOSTILE,
        settings=SettingsRecord(warnings=(HOSTILE,), layers=(HOSTILE,)),
    )  # fmt: skip


def test_text_from_the_machine_is_shown_as_it_is():
    page = render(hostile()).decode()
    bare = re.sub(r"\\[\\`*_\[\]|~$]", "", page)
    assert "<img" not in page and "](" not in bare and "`" not in bare and "~" not in bare
    assert "_" not in bare and "$" not in bare and "&amp;amp;" in bare
    assert set(re.findall(r"\*\*(\w[\w ]*)\*\*", bare)) == {
        "fail", "why", "fix", "blame", "limit from"
    }  # fmt: skip
    assert not [line for line in page.split("\n")[1:] if line.startswith("#")]


def test_the_fence_is_longer_than_any_run_of_backticks_inside():
    page = draw(result("shm", Outcome.ERROR, reason="died", output="x\n`````\n<b>"))
    assert "\n``````text\nx\n`````\n<b>\n``````\n" in page


def test_the_verdict_is_the_heading():
    assert render(FAILING).startswith(
        b"### FAIL node gpu-b17: dataloader: 812 samples/s of 2,511 n"
    )


def test_a_pass_prints_no_output():
    assert "secret" not in draw(result("shm", Outcome.PASS, output="secret"))
