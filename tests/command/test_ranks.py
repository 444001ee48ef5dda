"""All ranks of a job at once, through the real command."""

from __future__ import annotations

import pytest

from tests.command.images import write_images
from tests.command.running import SMALL_LOADER, Gate

pytestmark = pytest.mark.timeout(120)

RANKS = ("run", "--thresholds=cpu", *SMALL_LOADER, "--set=loader.ranks=4")


def test_four_ranks_load_at_once(gate: Gate) -> None:
    ran = gate.run(*RANKS)
    assert ran.code == 0, ran.stdout
    result = ran.result("dataloader")
    ranks = result["reading"]
    assert [seen["rank"] for seen in ranks] == [0, 1, 2, 3]
    assert [seen["ranks"] for seen in ranks] == [4] * 4
    assert all(seen["supply_samples_per_s"]["value"] > 0 for seen in ranks)
    supplies = [f for f in result["findings"] if f["id"] == "dataloader.supply"]
    assert [finding["subject"] for finding in supplies] == [f"rank {rank}" for rank in range(4)]
    cases = [case.name for suite in ran.junit for case in suite]
    assert {f"supply [rank {rank}]" for rank in range(4)} <= set(cases)


def test_ranks_take_each_other_for_their_own_and_not_for_neighbours(gate: Gate) -> None:
    ranks = gate.run(*RANKS).result("dataloader")["reading"]
    used_cpus = sum(
        seen["supply_samples_per_s"]["value"] * sum(seen["cpu_budget"].values()) / 1e3
        for seen in ranks
    )
    for seen in ranks:
        # Of itself alone it would count about a quarter.
        assert seen["own_cpu_share"] * seen["effective_cpus"] > 0.6 * used_cpus


def test_eight_ranks_stay_within_what_the_run_may_read_and_hold(gate: Gate) -> None:
    """Storage, all loaders and all loops together, though none of them is clear by then."""
    write_images(gate.folder / "data", 200)
    files = (gate.folder / "data").rglob("*.jpg")
    most_gib = 100 * sum(file.stat().st_size for file in files) / 2**30
    ran = gate.run(
        "run", "--thresholds=cpu", *SMALL_LOADER, "--data=data", "--set=loader.ranks=8",
        f"--set=run.max_read_gib={most_gib}", "--set=dataloader.demand_samples_per_s=20",
        "--set=dataloader.main_memory_gib=0.01", "--set=dataloader.worker_memory_gib=0.01",
    )  # fmt: skip
    read_gib = 0.0
    for result in ran.report["results"]:
        readings = result["reading"] or []
        for reading in readings if isinstance(readings, list) else [readings]:
            read_gib += reading.get("read_gib") or 0.0
    assert len(ran.result("dataloader")["reading"]) == 8
    assert 0 < read_gib <= most_gib


def test_eight_ranks_that_memory_would_not_hold_are_not_started(gate: Gate) -> None:
    ran = gate.run(*RANKS[:-1], "--set=loader.ranks=8", "--set=dataloader.main_memory_gib=1000")
    result = ran.result("dataloader")
    assert (result["outcome"], result["reading"]) == ("error", [None] * 8)
    (cause,) = {finding["cause"] for finding in result["findings"]}
    assert "8 x (1 workers x 0.2 GiB + 1000)" in cause
