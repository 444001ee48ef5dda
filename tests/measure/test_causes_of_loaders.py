"""Real loaders of a known kind, through the measuring of a rank: each names its own cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from preflight.checks.dataloader import cause
from preflight.checks.dataloader.evidence import Trial, WhatIf
from preflight.checks.dataloader.reading import DataloaderReading
from preflight.judge import Miss
from preflight.measure import alone, supply
from preflight.measure.closing import end_workers, worker_pids
from tests.checks.test_dataloader import decision, reading
from tests.command.hanging import storage
from tests.measure import kinds
from tests.measure.test_supply import unit

pytestmark = pytest.mark.timeout(90)

_QUICK = {"hopeless_ratio": 0.0, "max_s": 1.2, "warmup_s": 0.2}


@pytest.fixture(autouse=True)
def no_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = alone.Alone((), ())
    monkeypatch.setattr(supply, "measure_alone", lambda *_: nothing)


def measured(tmp_path: Path, name: str, workers: int, cpus: float) -> DataloaderReading:
    """A reading of `workers` workers that found `cpus` CPUs, as of a supply that was missed."""
    made = unit(tmp_path, stats=_QUICK, dataset=f"tests.measure.kinds:{name}")
    cpu = made.facts.cpu.model_copy(update={"effective": cpus})
    made = replace(
        made, facts=made.facts.model_copy(update={"cpu": cpu}),
        job=made.job.model_copy(update={"num_workers": workers}),
    )  # fmt: skip
    fields = supply.measure(made, 1e9, lambda fields: None)
    end_workers(worker_pids())
    missed = decision("missed", fields["supply_samples_per_s"].value)
    return reading("missed").model_copy(
        update={**fields, "decision": missed, "effective_cpus": cpus, "quota_cpus": None}
    )


def why(tmp_path: Path, name: str, *, cpus: float = 8.0, tried: bool = False) -> Miss:
    seen = measured(tmp_path, name, 2, cpus)
    if tried:
        more = measured(tmp_path, name, 4, cpus)
        assert more.supply_samples_per_s is not None
        trial = Trial(
            num_workers=4, prefetch_factor=seen.prefetch_factor,
            samples_per_s=more.supply_samples_per_s,
        )  # fmt: skip
        seen = seen.model_copy(update={"what_if": WhatIf(trials=(trial,))})
    return cause.of_missing(seen)


@pytest.mark.parametrize(
    ("name", "cpus", "id"),
    [
        ("busy", 2.0, "cpus"),
        ("busy", 8.0, "few_workers"),
        ("threaded", 2.0, "helper_threads"),
        ("large", 2.0, "transport"),
        ("unbatched", 2.0, "transport"),
        ("slow_sampler", 2.0, "main_process"),
        ("asleep", 8.0, "latency"),
        ("locked", 8.0, "lock"),
    ],
)
def test_each_kind_names_its_own_cause(tmp_path: Path, name: str, cpus: float, id: str) -> None:
    miss = why(tmp_path, name, cpus=cpus)
    assert miss.cause_id == id, miss.cause


def test_a_lock_is_named_with_its_line(tmp_path: Path) -> None:
    miss = why(tmp_path, "locked", tried=True)
    assert miss.cause_id == "lock", miss.cause
    assert f"{kinds.__file__}:" in miss.cause
    assert "4 workers gave" in miss.cause


@pytest.mark.parametrize(("threads", "id"), [(True, "remote_latency"), (False, "remote_saturated")])
def test_servers_are_told_apart_by_twice_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: bool, id: str
) -> None:
    with kinds.server(threads=threads) as port:
        monkeypatch.setenv(kinds.PORT, str(port))
        for _ in range(3):  # beside other work the two rates may be too close to tell
            miss = why(tmp_path, "served", tried=True)
            if miss.cause_id != "remote":
                break
    assert miss.cause_id == id, miss.cause


def test_files_that_a_process_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fuse").mkdir()
    with storage(tmp_path / "fuse") as mounted:
        for number in range(50):
            (mounted.source / f"{number}").write_bytes(b"x" * 20_000)
        mounted.delay(read=0.02)
        monkeypatch.setenv(kinds.FOLDER, str(mounted.folder))
        miss = why(tmp_path, "files")
    assert miss.cause_id == "storage_unaccounted", miss.cause
    assert miss.blame == "shared"
