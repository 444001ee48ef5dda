"""storage: what a reading comes to; what is asked of the data path; when nothing is read."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.checks.contract import Unavailable, Unit
from preflight.checks.storage import CHECK, observe
from preflight.checks.storage.reading import (
    StorageReading,
    cache_state_of,
    limit_of,
    pace_of,
)
from preflight.job import DataOn
from preflight.machine.root import Root
from preflight.measure.stopping import Decision
from preflight.model import Finding, Rate
from preflight.outcome import Blame, Outcome
from preflight.scratch import Scratch
from tests import making

DISK = DataOn(point="/data", fs_type="ext4", source="/dev/nvme0n1p1", kind="local")
NFS = DataOn(point="/data", fs_type="nfs4", source="server:/export", kind="network")
FUSE = DataOn(point="/data", fs_type="fuse", source="Passthrough", kind="unknown")
TMPFS = DataOn(point="/data", fs_type="tmpfs", source="tmpfs", kind="memory")


def rate(value: float, low: float | None = None, high: float | None = None) -> Rate:
    return Rate(
        value=value, low=low, high=high, unit="samples/s", blocks=11, discarded=0, samples=()
    )


def decision(verdict: str, disturbed: int = 0) -> Decision:
    return Decision(verdict=verdict, clause="all", blocks=11, disturbed_blocks=disturbed)


def reading(**changes: Any) -> StorageReading:
    """A node's own disk, proved cold, with twice what is needed."""
    usual: dict[str, Any] = {
        "data": "/data/train", "data_state": "ok", "data_on": DISK,
        "disk_model": "Micron_7450_MTFDKCC3T8TFR", "demand_samples_per_s": None,
        "demand_from": None, "ranks": 1, "limit_samples_per_s": 1000.0, "readers": 8,
        "files": 50_000, "files_complete": False, "mean_file_bytes": 110_000.0,
        "first_touch_samples_per_s": rate(2000.0, 1950.0, 2050.0), "first_touch_gb_per_s": 0.22,
        "opens_per_s": 90_000.0, "cache_state": "cold", "hit_percent": 0.0,
        "warm_samples_per_s": rate(40_000.0), "files_read": 5500, "read_gib": 0.6,
        "max_read_gib": 8.0, "ended": "decided", "window_s": 2.75,
        "decision": decision("reached"), "disturbed_share": 0.0, "max_disturbance": 0.05,
        "evicted": False, "memory_headroom_gib": 30.0, "seed": 1,
    }  # fmt: skip
    return StorageReading(**{**usual, **changes})


def slow(verdict: str = "missed", **changes: Any) -> StorageReading:
    """Half of what is needed."""
    usual: dict[str, Any] = {
        "first_touch_samples_per_s": rate(500.0, 480.0, 520.0), "first_touch_gb_per_s": 0.055,
        "decision": decision(verdict),
    }  # fmt: skip
    return reading(**{**usual, **changes})


def judged(seen: StorageReading) -> dict[str, Finding]:
    findings = CHECK.judge([seen], making.limits("storage"))
    for finding in findings:
        bad = finding.outcome not in (Outcome.PASS, Outcome.SKIP)
        assert bad == bool(finding.cause and finding.remedy and finding.blame)
    return {finding.id.removeprefix("storage."): finding for finding in findings}


def test_a_cold_disk_that_is_fast_enough_passes() -> None:
    found = judged(reading())
    assert {id: finding.outcome for id, finding in found.items()} == {
        "first_touch": Outcome.PASS, "cache_state": Outcome.PASS,
    }  # fmt: skip
    first = found["first_touch"]
    assert (first.observed, first.limit, first.unit) == (2000.0, 1000.0, "samples/s")


@pytest.mark.parametrize(
    ("changes", "blame"),
    [
        ({}, Blame.NODE),
        ({"disk_model": None}, Blame.UNKNOWN),
        ({"disk_model": "Amazon Elastic Block Store"}, Blame.UNKNOWN),
        ({"disk_model": "PersistentDisk"}, Blame.UNKNOWN),
        ({"disk_model": "QEMU HARDDISK"}, Blame.UNKNOWN),
        ({"cache_state": "cached", "hit_percent": 60.0}, Blame.UNKNOWN),
        ({"cache_state": "unknown", "hit_percent": None}, Blame.UNKNOWN),
        ({"disturbed_share": 0.2}, Blame.UNKNOWN),
        ({"disturbed_share": None}, Blame.UNKNOWN),
        ({"data_on": NFS, "disk_model": None, "cache_state": "unknown"}, Blame.SHARED),
        ({"data_on": FUSE, "disk_model": None, "cache_state": "unknown"}, Blame.UNKNOWN),
        ({"data_on": TMPFS, "disk_model": None, "cache_state": "memory"}, Blame.UNKNOWN),
        ({"data_on": None, "disk_model": None, "cache_state": "unknown"}, Blame.UNKNOWN),
    ],
)
def test_the_node_is_blamed_for_a_disk_of_its_own_alone(
    changes: dict[str, Any], blame: Blame
) -> None:
    first = judged(slow(**changes))["first_touch"]
    assert (first.outcome, first.blame) == (Outcome.FAIL, blame)


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"cache_state": "cold"}, Outcome.PASS),
        ({"cache_state": "memory", "data_on": TMPFS}, Outcome.PASS),
        ({"cache_state": "cached", "hit_percent": 40.0}, Outcome.WARN),
        ({"cache_state": "unknown", "data_on": FUSE}, Outcome.WARN),
        ({"cache_state": "unknown", "data_on": NFS}, Outcome.WARN),
    ],
)
def test_where_memory_may_have_answered_the_rate_is_an_upper_bound(
    changes: dict[str, Any], outcome: Outcome
) -> None:
    """Over the limit it warns; under it, it fails all the same."""
    found = judged(reading(**changes))
    assert found["first_touch"].outcome is Outcome.PASS
    assert found["cache_state"].outcome is outcome
    assert judged(slow(**changes))["first_touch"].outcome is Outcome.FAIL


def test_a_cached_path_says_how_much_and_how_to_see_the_disk() -> None:
    found = judged(reading(cache_state="cached", hit_percent=87.3))["cache_state"]
    assert "87 % of the bytes" in str(found.cause) and "storage.evict" in str(found.remedy)


@pytest.mark.parametrize(
    ("changes", "outcome", "words"),
    [
        ({"decision": decision("close")}, Outcome.WARN, "too close to the limit"),
        ({"decision": decision("undecided"), "ended": "time"}, Outcome.ERROR, "too few"),
        ({"decision": None, "ended": "time"}, Outcome.ERROR, "too few"),
        ({"decision": decision("undecided"), "ended": "bytes"}, Outcome.ERROR, "8 GiB"),
        (
            {"decision": decision("undecided", 6), "ended": "time"},
            Outcome.ERROR,
            "others used CPU in 6 of 11 blocks",
        ),
        (
            {"decision": decision("undecided"), "ended": "files", "window_s": 0.4},
            Outcome.WARN,
            "read through in 0.4 s, too soon",
        ),
        (
            {"decision": decision("undecided"), "ended": "files", "window_s": 9.0},
            Outcome.ERROR,
            "too few",
        ),
        ({"decision": None, "ended": "files", "window_s": 0.1}, Outcome.WARN, "too soon"),
    ],
)
def test_what_is_not_clear_is_no_fail(
    changes: dict[str, Any], outcome: Outcome, words: str
) -> None:
    first = judged(slow(**changes))["first_touch"]
    assert first.outcome is outcome
    assert words in str(first.cause)


def test_a_folder_read_in_no_time_at_all_passes_by_its_rate_alone() -> None:
    seen = reading(decision=None, ended="files", window_s=0.02)
    assert judged(seen)["first_touch"].outcome is Outcome.PASS


def test_a_small_data_set_is_to_be_read_once_beforehand() -> None:
    small: dict[str, Any] = {"files": 3000, "files_complete": True}
    remedy = str(judged(slow(**small))["first_touch"].remedy)
    assert "0.31 GiB" in remedy and "read it once before the job" in remedy
    for changes in (
        {"files_complete": False},
        {"memory_headroom_gib": 0.5},
        {"warm_samples_per_s": rate(900.0)},
        {"warm_samples_per_s": None},
    ):
        assert "memory" not in str(judged(slow(**{**small, **changes}))["first_touch"].remedy)


def test_time_spent_in_opening_files_is_named() -> None:
    first = judged(slow(opens_per_s=625.0))["first_touch"]
    assert "80% of their time went into opening" in str(first.cause)
    assert "larger files" in str(first.remedy)


def test_files_that_cannot_be_read_are_a_warning() -> None:
    found = judged(reading(unreadable_files=3))["unreadable_files"]
    assert (found.outcome, found.observed, found.blame) == (Outcome.WARN, 3, Blame.DATA)


@pytest.mark.parametrize(
    ("state", "blame"),
    [("no_answer", Blame.SHARED), ("unreadable", Blame.SETUP), ("empty", Blame.DATA)],
)
def test_a_path_that_is_no_good_fails_as_the_loaders_would(state: str, blame: Blame) -> None:
    (found,) = judged(reading(data_state=state)).values()
    assert (found.id, found.outcome, found.blame) == ("storage.data", Outcome.FAIL, blame)


@pytest.mark.parametrize(
    ("on", "accounted", "hits", "state"),
    [
        (DISK, True, 0.0, "cold"),
        (DISK, True, 5.0, "cold"),
        (DISK, True, 5.1, "cached"),
        (DISK, True, 100.0, "cached"),
        (DISK, True, None, "unknown"),  # /proc/self/io is hidden
        (DISK, False, 0.0, "cold"),  # a file system nobody knows, but a device did answer
        (DISK, False, 100.0, "unknown"),  # ZFS reads in threads of its own
        (NFS, False, 0.0, "unknown"),
        (FUSE, False, 0.0, "unknown"),
        (TMPFS, False, 100.0, "memory"),
        (None, False, 0.0, "unknown"),
    ],
)
def test_the_state_of_the_cache_is_proved_or_unknown(
    on: DataOn | None, accounted: bool, hits: float | None, state: str
) -> None:
    assert cache_state_of(on, accounted, hits, 5.0) == state


@pytest.mark.parametrize(
    ("demand", "ranks", "needed", "paced"),
    [(None, 1, 100.0, 125.0), (None, 4, 400.0, 500.0), (2000.0, 4, 7200.0, 10_000.0)],
)
def test_all_ranks_are_needed_at_once(
    demand: float | None, ranks: int, needed: float, paced: float
) -> None:
    limits = making.limits("storage", demand_samples_per_s=demand)
    assert limit_of(limits, ranks) == needed
    assert pace_of(limits, ranks, 1.25) == paced
    assert pace_of(limits, ranks, None) is None


def unit(**changes: Any) -> Unit:
    return Unit(
        subject=None, machine=Root("/"), limits=making.limits("storage"),
        job=making.job(data="/nowhere", **changes), facts=making.facts(), earlier={},
        scratch=Scratch("storage-test"),
    )  # fmt: skip


def test_a_path_that_does_not_answer_is_not_touched() -> None:
    seen = observe(unit(data_state="no_answer"))
    assert (seen.data_state, seen.files) == ("no_answer", None)


def test_more_readers_than_memory_are_refused() -> None:
    with pytest.raises(Unavailable, match=r"32768 readers x 0\.01 GiB"):
        observe(unit(data_state="ok", ranks=8192))


def test_it_reads_the_data_path_and_needs_nothing() -> None:
    assert (CHECK.data, CHECK.needs, CHECK.fan_out) == (True, (), "none")
