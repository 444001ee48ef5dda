"""shm: arithmetic, the bounded write, and what each miss says."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preflight.checks.contract import Unit
from preflight.checks.shm import CHECK, GIB, ShmReading, bytes_to_write, temporary_folder
from preflight.machine.facts import gather
from preflight.machine.root import host
from preflight.measure.shm_write import write_and_read_back
from preflight.outcome import Outcome
from preflight.scratch import Scratch
from tests import making
from tests.fakes import FixtureRoot

HEALTHY = ShmReading(
    mounted=True, fs_type="tmpfs", size_gib=16.0, free_gib=16.0, need_gib=0.1122,
    memory_headroom_gib=30.0, memory_limit_gib=32.0, container="kubernetes", written_gib=0.1122,
    write_error=None, stale_gib=0.0, stale_files=(), temporary_folder="/tmp",
)  # fmt: skip


def judged(**changes: Any) -> dict[str, Any]:
    seen = HEALTHY.model_copy(update=changes)
    return {finding.id: finding for finding in CHECK.judge([seen], making.limits("shm"))}


def test_a_healthy_mount_passes() -> None:
    assert {finding.outcome for finding in judged().values()} == {Outcome.PASS}


@pytest.mark.parametrize(
    ("changes", "id", "outcome"),
    [
        ({"mounted": False}, "mounted", Outcome.FAIL),
        ({"temporary_folder": None}, "temporary_folder", Outcome.FAIL),
        ({"mounted": False, "temporary_folder": None}, "temporary_folder", Outcome.FAIL),
        ({"size_gib": 64.0}, "within_memory", Outcome.WARN),
        ({"free_gib": 0.1}, "need", Outcome.FAIL),
        ({"free_gib": 0.2}, "floor", Outcome.FAIL),
        ({"memory_headroom_gib": 0.1}, "memory_behind", Outcome.FAIL),
        ({"write_error": "No space left on device"}, "write_back", Outcome.FAIL),
        ({"stale_gib": 3.0, "stale_files": ("torch_1 (3 GiB)",)}, "stale_files", Outcome.WARN),
    ],
)
def test_misses(changes: dict[str, Any], id: str, outcome: Outcome) -> None:
    finding = judged(**changes)[f"shm.{id}"]
    assert finding.outcome is outcome
    assert finding.remedy


def test_the_remedy_names_all_three_ways_of_giving_more() -> None:
    remedy = judged(free_gib=0.06, size_gib=0.0625)["shm.need"].remedy
    for way in ("docker run --shm-size=1g", "shm_size: 1gb", "sizeLimit: 1Gi"):
        assert way in remedy


def test_no_temporary_folder_says_what_would_happen_and_what_to_mount() -> None:
    finding = judged(temporary_folder=None)["shm.temporary_folder"]
    assert "waits for ever" in finding.cause and finding.blame == "setup"
    for way in ("docker run --tmpfs /tmp", "tmpfs: /tmp", "emptyDir at /tmp", "TMPDIR"):
        assert way in finding.remedy


def test_a_mount_larger_than_the_memory_limit_is_explained() -> None:
    finding = judged(size_gib=64.0, free_gib=64.0, memory_limit_gib=16.0)["shm.within_memory"]
    assert (finding.observed, finding.limit, finding.blame) == (64.0, 16.0, "setup")
    assert "exit 137" in finding.cause and "sizeLimit" in finding.remedy


@pytest.mark.parametrize("changes", [{"container": None}, {"memory_limit_gib": None}])
def test_a_hosts_own_mount_is_not_held_against_a_jobs_limit(changes: dict[str, Any]) -> None:
    assert "shm.within_memory" not in judged(size_gib=64.0, **changes)


def test_an_emptydir_above_the_pods_memory_limit_on_a_recorded_machine() -> None:
    pod = gather(FixtureRoot.named("kubernetes_emptydir"), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    limits = making.limits("shm", write="none")
    unit = Unit(
        subject=None, machine=host(), limits=limits, job=making.job(), facts=pod, earlier={},
        scratch=Scratch("test"),
    )  # fmt: skip
    findings = {finding.id: finding for finding in CHECK.judge([CHECK.observe(unit)], limits)}
    assert findings["shm.within_memory"].outcome is Outcome.WARN
    assert findings["shm.memory_behind"].outcome is Outcome.PASS
    # What the planned loader needs is more than the memory behind it: that is no trap but a fail.
    large = unit.job.model_copy(update={"num_workers": 2000})
    seen = CHECK.observe(replace(unit, job=large))
    behind = {finding.id: finding for finding in CHECK.judge([seen], limits)}["shm.memory_behind"]
    assert behind.outcome is Outcome.FAIL and "memory limit" in behind.cause


def test_the_temporary_folder_is_the_one_that_multiprocessing_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch("test")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_folder(scratch) == str(tmp_path)
    own = tmp_path / scratch.name  # where the process that observes has TMPDIR point
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(own))
    assert temporary_folder(scratch) == str(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
    assert temporary_folder(scratch) is None


def test_64_mib_is_recognised_as_nobodys_choice() -> None:
    assert "engine's default" in judged(free_gib=0.0625, size_gib=0.0625)["shm.need"].cause
    assert "engine's default" not in judged(free_gib=0.05, size_gib=0.05)["shm.need"].cause


@pytest.mark.parametrize(
    ("changes", "mode", "gib"),
    [
        ({}, "bounded", 0.1122),
        ({}, "none", 0.0),
        ({"need_gib": 8.0}, "bounded", 1.0),  # never more than 1 GiB
        ({"need_gib": 8.0}, "full", 8.0),
        ({"need_gib": 8.0, "free_gib": 2.0}, "bounded", 0.5),  # a quarter of what is free
        ({"need_gib": 8.0, "free_gib": 1.1}, "bounded", 0.1),  # 1 GiB is left
        ({"need_gib": 8.0, "free_gib": 0.0625}, "bounded", 0.0625 / 4),
        ({"need_gib": 8.0, "memory_headroom_gib": 0.5}, "full", 0.4),  # never past the memory
    ],
)
def test_how_much_is_written(changes: dict[str, Any], mode: str, gib: float) -> None:
    seen = HEALTHY.model_copy(update=changes)
    assert bytes_to_write(seen, making.limits("shm", write=mode)) == pytest.approx(gib * GIB, abs=1)


def test_write_leaves_nothing_behind(tmp_path: Path) -> None:
    assert write_and_read_back(tmp_path, 9_000_000) == (9_000_000, None)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    assert write_and_read_back(tmp_path / "none", 1) == (0, "No such file or directory")


def test_bytes_that_come_back_wrong_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: b"\0" * size)
    written, error = write_and_read_back(tmp_path, 1000)
    assert written == 0
    assert error is not None and "differ" in error


def test_observe_writes_what_the_job_needs() -> None:
    unit = Unit(
        subject=None, machine=host(), limits=making.limits("shm"), job=making.job(batch_size=1),
        facts=making.facts(), earlier={}, scratch=Scratch("test"),
    )  # fmt: skip
    seen = CHECK.observe(unit)
    assert seen.written_gib == pytest.approx(seen.need_gib, rel=1e-3)
    assert seen.write_error is None


def test_observe_without_the_mount_writes_nothing() -> None:
    unit = Unit(
        subject=None, machine=host(), limits=making.limits("shm"), job=making.job(),
        facts=making.facts(shm=None), earlier={}, scratch=Scratch("test"),
    )  # fmt: skip
    seen = CHECK.observe(unit)
    assert (seen.mounted, seen.written_gib) == (False, None)
