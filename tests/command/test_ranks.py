"""All ranks of a job at once, through the real command."""

from __future__ import annotations

import pytest

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
