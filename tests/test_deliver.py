"""Report files: replaced whole, lost with words, never a hang."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from preflight import deliver
from preflight.deliver import Delivery, Undeliverable
from preflight.last_words import leave_report
from preflight.report.json_report import parse
from tests.report.reading_junit import outcome, read

pytestmark = pytest.mark.timeout(60)


def opened(folder: Path) -> Delivery:
    delivery = Delivery(str(folder))
    delivery.wait_ready()
    return delivery


def test_files_are_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "on the way"
    delivery = opened(folder)
    delivery.write({"preflight.json": b"one", "preflight.xml": b"\0\xff binary"})
    delivery.write({"preflight.json": b"two"})
    delivery.close()
    assert sorted(os.listdir(folder)) == ["preflight.json", "preflight.xml"]
    assert (folder / "preflight.json").read_bytes() == b"two"
    assert (folder / "preflight.xml").read_bytes() == b"\0\xff binary"
    assert (folder / "preflight.json").stat().st_mode & 0o777 == 0o644


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Undeliverable, match="Not a directory"):
        opened(tmp_path / "file" / "reports")


def test_a_folder_that_vanishes_is_said(tmp_path: Path) -> None:
    delivery = opened(tmp_path / "reports")
    (tmp_path / "reports").rmdir()
    with pytest.raises(Undeliverable, match="No such file"):
        delivery.write({"preflight.json": b"x"})
    delivery.close()


def test_a_folder_that_hangs_costs_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "_BOOTSTRAP", "import time; time.sleep(600)")
    monkeypatch.setattr(deliver, "ANSWER_LIMIT_S", 0.3)
    delivery = Delivery(str(tmp_path))
    with pytest.raises(Undeliverable, match="no answer in 0 s"):
        delivery.wait_ready()
    delivery.close()
    assert delivery._process.wait(5) != 0


def test_a_stopped_writer_costs_the_limit_however_large_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = opened(tmp_path)
    monkeypatch.setattr(deliver, "ANSWER_LIMIT_S", 0.3)
    os.kill(delivery._process.pid, signal.SIGSTOP)
    with pytest.raises(Undeliverable, match="no answer"):
        delivery.write({"preflight.json": b"x" * 1_000_000})
    delivery.close()


def test_a_writer_that_died_is_said(tmp_path: Path) -> None:
    delivery = opened(tmp_path)
    delivery._process.kill()
    delivery._process.wait()
    with pytest.raises(Undeliverable, match=r"gone|died"):
        delivery.write({"preflight.json": b"x" * 1_000_000})
    delivery.close()


@pytest.mark.parametrize("how", ["flag", "joined flag", "variable"])
def test_last_words_replace_an_old_pass_in_both_formats(tmp_path: Path, how: str) -> None:
    (tmp_path / "preflight.json").write_text('{"outcome": "pass"}')
    arguments = {
        "flag": ["--report-dir", str(tmp_path)],
        "joined flag": [f"--report-dir={tmp_path}"],
    }
    environ = {"PREFLIGHT_REPORT_DIR": str(tmp_path)} if how == "variable" else {}
    leave_report("it broke: <&\x00\ud800>", arguments.get(how, []), environ)
    report = parse((tmp_path / "preflight.json").read_text())
    assert (report.exit_code, report.outcome) == (3, "error")
    (suite,) = read((tmp_path / "preflight.xml").read_bytes())
    (case,) = suite
    assert outcome(case) == "error"
    assert "it broke" in case.result[0].message


def test_last_words_are_silent_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leave_report("it broke", ["run"], {})
    assert os.listdir(tmp_path) == []


def test_last_words_survive_an_unwritable_folder() -> None:
    leave_report("it broke", ["--report-dir", "/proc/nothing"], {})


def test_the_handwritten_report_has_every_key_of_the_record(tmp_path: Path) -> None:
    leave_report("x", ["--report-dir", str(tmp_path)], {}, code=2)
    document = json.loads((tmp_path / "preflight.json").read_text())
    report = parse(json.dumps(document))
    assert report.exit_code == 2
    assert set(document) == set(type(report).model_fields)
