"""The measurement itself, on a real DataLoader with small samples: what it sees, and its ends."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.checks.contract import Unit
from preflight.checks.dataloader import CHECK
from preflight.data import image_folder
from preflight.machine.root import host
from preflight.measure import samples, supply
from preflight.measure.burner import burning
from preflight.scratch import Scratch
from tests import making

pytestmark = pytest.mark.timeout(90)


def unit(tmp_path: Path, *, stats: dict[str, Any] | None = None, **changes: Any) -> Unit:
    """Two workers on small raw samples; short blocks, since nothing here judges a rate."""
    quick = {"block_s": 0.05, "warmup_s": 0.1, "max_s": 2.0, **(stats or {})}
    base = making.job()
    sample = changes.pop("sample", {"codec": "raw", "encoded_bytes": 4096, "shape": (64, 64)})
    job = making.job(
        num_workers=2, batch_size=8,
        sample=base.sample.model_copy(update=sample),
        stats=base.stats.model_copy(update=quick),
        **changes,
    )  # fmt: skip
    scratch = Scratch(f"test-{os.getpid()}")
    scratch._parents = (tmp_path,)
    return Unit(
        subject="rank 0", machine=host(), limits=making.limits("dataloader"), job=job,
        facts=making.facts(), earlier={}, scratch=scratch,
    )  # fmt: skip


def photos(folder: Path, good: int, corrupt: int = 0) -> Path:
    from PIL import Image

    folder.mkdir()
    for number in range(good):
        Image.new("RGB", (32, 32), (number % 256, 0, 0)).save(folder / f"{number:03}.jpg")
    for number in range(corrupt):
        (folder / f"bad{number}.jpg").write_bytes(b"\xff\xd8 not an image")
    return folder


def test_a_run_tells_what_happened(tmp_path: Path) -> None:
    emitted: list[dict[str, Any]] = []
    fields = supply.measure(unit(tmp_path), 1.0, emitted.append)
    assert fields["decision"].verdict == "reached"
    assert fields["supply_samples_per_s"].value > 1.0
    assert len(fields["blocks"]) >= 8
    assert fields["first_batch_s"] > 0
    assert fields["own_cpu_share"] > 0
    assert fields["files"] == 64
    assert fields["corrupt_samples"] == 0


def test_what_is_emitted_meanwhile_is_a_reading(tmp_path: Path) -> None:
    emitted: list[Any] = []
    made = unit(tmp_path, stats={"hopeless_ratio": 0.0, "max_s": 15.0})
    limits = making.limits("dataloader", min_samples_per_s=1e12)
    reading = CHECK.observe(Unit(**{**vars(made), "limits": limits, "emit": emitted.append}))
    assert reading.decision is not None and reading.decision.verdict == "missed"
    assert emitted and all(isinstance(early, CHECK.reading) for early in emitted)
    assert emitted[0].decision is None
    assert emitted[-1].decision is not None  # before the stages, which may be cut off
    assert reading.stages and not emitted[-1].stages
    assert CHECK.reading.model_validate_json(reading.model_dump_json()).blocks == reading.blocks


def test_a_folder_of_images_with_corrupt_ones_among_them(tmp_path: Path) -> None:
    folder = photos(tmp_path / "data", good=30, corrupt=3)
    made = unit(
        tmp_path, data=str(folder), data_state="ok",
        sample={"codec": "jpeg", "shape": (3, 16, 16)},
    )  # fmt: skip
    fields = supply.measure(made, 1.0, lambda fields: None)
    assert fields["files"] == 33
    assert 5 < fields["corrupt_percent"] < 15
    assert all("bad" in name for name in fields["corrupt_files"])


def test_a_data_set_that_raises_is_raised(tmp_path: Path) -> None:
    folder = photos(tmp_path / "data", good=0, corrupt=20)
    made = unit(
        tmp_path, data=str(folder), data_state="ok",
        sample={"codec": "jpeg", "shape": (3, 16, 16)},
    )  # fmt: skip
    with pytest.raises(Exception, match="samples in a row could not be read"):
        supply.measure(made, 1.0, lambda fields: None)


def test_generated_files_go_to_scratch_or_stay_in_memory(tmp_path: Path) -> None:
    made = unit(tmp_path)
    found = samples.find(made)
    assert found.source is not None
    assert len(os.listdir(tmp_path / f"preflight-test-{os.getpid()}")) == 64
    made.scratch.make = lambda: None  # type: ignore[method-assign]
    assert samples.find(made).source is not None


def test_a_listing_that_goes_silent_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(path: str, **options: Any) -> None:
        options["on_progress"](1)
        time.sleep(60)

    monkeypatch.setattr(samples, "list_images", silent)
    monkeypatch.setattr(samples, "ANSWER_LIMIT_S", 0.2)
    made = unit(tmp_path, data="/data", data_state="ok")
    assert samples.find(made).state == "no_answer"


def test_a_slow_listing_that_keeps_answering_is_not_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = photos(tmp_path / "data", good=3)

    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)

    def slow(path: str, **options: Any) -> image_folder.Listing:
        for entry in range(4):  # 12 s in all, but never 5 of silence
            clock.now += 3.0
            time.sleep(2 * samples._POLL_S)  # long enough to be looked at
            options["on_progress"](entry)
        return image_folder.list_images(path, codec=options["codec"])

    monkeypatch.setattr(samples, "list_images", slow)
    monkeypatch.setattr(samples, "time", clock)
    found = samples.find(unit(tmp_path, data=str(folder), data_state="ok"))
    assert found.state == "ok" and found.source is not None and len(found.source) == 3


def test_a_folder_that_has_no_image_by_now(tmp_path: Path) -> None:
    """The first look found some: they may have gone since."""
    folder = tmp_path / "data"
    folder.mkdir()
    photos = unit(tmp_path, data=str(folder), sample={"codec": "jpeg"})
    assert samples.find(photos).state == "empty"
    (folder / "labels.csv").write_text("1,2")
    assert samples.find(photos).state == "no_image"
    assert samples.find(unit(tmp_path, data=str(folder))).state == "ok"  # raw: every file
    own = unit(tmp_path, data=str(folder), sample={"codec": "jpeg"}, dataset="job:make")
    assert samples.find(own).state == "ok"


@pytest.mark.parametrize(("cpus", "processes"), [(0.0, 0), (0.5, 1), (1.5, 2)])
def test_the_burner_uses_what_it_is_told_and_ends(cpus: float, processes: int) -> None:
    def cpu_s(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with burning(cpus) as pids:
        assert len(pids) == processes
        time.sleep(0.8)
        used = sum(map(cpu_s, pids))
        assert (used > 0) == (cpus > 0)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
