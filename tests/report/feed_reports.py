"""Reports of which the feed is the matter: stages, ranks, no demand, a loop, a paced load."""

from __future__ import annotations

from typing import Any

from preflight.model import Finding, Rate, Report, Result
from preflight.outcome import Blame, Outcome

from .reports import OPTIONS, REPORTS, SHM_RESULT, SUPPLY_RATE, report, result, settings


def rate(value: float, spread: float = 0.04, unit: str = "samples/s") -> dict[str, Any]:
    """A rate as the document has it."""
    low, high = value * (1 - spread), value * (1 + spread)
    return Rate(
        value=value, low=low, high=high, unit=unit, blocks=8, discarded=0, samples=(value,)
    ).model_dump(mode="json")


def stage(name: str, value: float, note: str | None = None) -> dict[str, Any]:
    return {"name": name, "samples_per_s": rate(value), "cpu_ms_per_sample": None, "note": note}


def seen(**fields: Any) -> dict[str, Any]:
    """A loader's reading; demand 2,790 unless said."""
    base = {
        "rank": 0, "ranks": 1, "supply_samples_per_s": rate(811.9), "demand_samples_per_s": 2790.0,
        "demand_from": "site", "limit_samples_per_s": 2511.0, "stages": [], "cpu_budget": None,
        "limiting_stage": None, "data": "/data",
    }  # fmt: skip
    return base | fields


def supply(
    observed: float, limit: float, outcome: Outcome, rank: int = 0, **fields: Any
) -> Finding:
    return Finding(
        id="dataloader.supply", outcome=outcome, subject=f"rank {rank}", observed=observed,
        comparison="at_least", limit=limit, unit="samples/s", **fields,
    )  # fmt: skip


def loader(outcome: Outcome, reading: Any, *findings: Finding, **changes: Any) -> Result:
    return result("dataloader", outcome, *findings, reading=reading, duration_s=11.4, **changes)


QUOTA = {
    "cause": "the loader workers used all of the 2.0-CPU quota", "blame": Blame.SETUP,
    "remedy": "give the container at least 8 CPUs (it has a quota of 2.0 on a 64-CPU node)",
}  # fmt: skip
BUDGET = {"getitem_ms": 2.25, "collate_ms": 0.15, "main_ms": 0.06}
STAGES = [
    stage("fetch", 9800.0), stage("decode", 890.0), stage("transport", 5100.0),
    stage("copy", 88000.0, "53.1 GB/s"),
]  # fmt: skip
TOUCHED = result(
    "storage", Outcome.PASS,
    Finding(id="storage.first_touch", outcome=Outcome.PASS, subject="/data", observed=9800.0,
            comparison="at_least", limit=2511.0, unit="samples/s"),
    reading={"first_touch_samples_per_s": rate(9800.0), "warm_samples_per_s": rate(21000.0),
             "cache_state": "cold"},
    duration_s=3.1,
)  # fmt: skip

HOST_ONLY = report(
    SHM_RESULT,
    TOUCHED,
    loader(
        Outcome.FAIL,
        seen(supply_samples_per_s=SUPPLY_RATE.model_dump(mode="json"), stages=STAGES,
             limiting_stage="decode", cpu_budget=BUDGET),
        supply(811.9, 2511.0, Outcome.FAIL, source="MLPerf Storage v2.0 rules, AU 90 %", **QUOTA),
    ),
    outcome=Outcome.FAIL, exit_code=1,
)  # fmt: skip
"""The page that design draws: one rank, all stages, the decode limits."""

RANKS = [("2", 170.4), ("0", 171.2), ("3", 176.0), ("1", 181.9)]
FOUR_RANKS = report(
    SHM_RESULT,
    loader(
        Outcome.FAIL,
        [
            seen(rank=int(rank), ranks=4, supply_samples_per_s=rate(value),
                 demand_samples_per_s=700.0, limit_samples_per_s=630.0, data=None,
                 **({"alone_samples_per_s": rate(640.0), "cpu_budget": BUDGET,
                     "limiting_stage": "decode", "stages": STAGES[:3]} if rank == "0" else {}))
            for rank, value in sorted(RANKS)
        ],
        *(supply(value, 630.0, Outcome.FAIL, int(rank), **QUOTA) for rank, value in sorted(RANKS)),
    ),
    outcome=Outcome.FAIL, exit_code=1,
)  # fmt: skip
"""Four ranks on 2 CPUs, without a storage check."""

NO_DEMAND = report(
    SHM_RESULT,
    loader(
        Outcome.PASS,
        seen(demand_samples_per_s=None, demand_from=None, limit_samples_per_s=100.0, data=None,
             cpu_budget=BUDGET),
        supply(811.9, 100.0, Outcome.PASS),
    ),
    settings=settings(data=None),
)  # fmt: skip
"""A pass by the floor alone."""

LOOP = report(
    SHM_RESULT,
    TOUCHED,
    loader(
        Outcome.WARN,
        seen(supply_samples_per_s=rate(2463.6), paced_samples_per_s=3487.5, limiting_stage="fetch",
             stages=[stage("fetch", 2600.0), *STAGES[2:3]], cpu_budget=BUDGET | {"main_ms": None}),
        supply(2463.6, 2511.0, Outcome.WARN, cause="too close to the limit to be sure",
               remedy="repeat when the file server is quiet", blame=Blame.SHARED),
    ),
    result(
        "feed", Outcome.FAIL,
        Finding(id="feed.utilisation", outcome=Outcome.FAIL, observed=87.1, comparison="at_least",
                limit=90.0, unit="%", cause="the loop waited", blame=Blame.SHARED,
                remedy="raise loader.num_workers to 16"),
        reading={
            "predicted_utilisation_percent": 88.3, "measured_utilisation_percent": 87.06,
            "au_percent": 81.0, "stalled_steps_percent": 12.94, "longest_stall_s": 0.412,
            "first_batch_s": 1.23, "new_epoch_s": 0.3, "new_epoch_restarted_s": 1.94,
            "demand_samples_per_s": 2790.0,
        },
        duration_s=8.2,
    ),
    outcome=Outcome.FAIL, exit_code=1, settings=settings(**OPTIONS),
)  # fmt: skip
"""A file server that is spared, and a loop that waits for it."""

WHAT_IF = {
    "trials": [
        {"num_workers": workers, "prefetch_factor": 2, "samples_per_s": rate(value)}
        for workers, value in ((2, 135.2), (4, 279.0), (8, 484.0), (12, 579.4))
    ],
    "cpus_needed": 3, "cached_samples_per_s": 640.0, "reason": None,
    "notes": ["persistent_workers=True saves up to 1.4 s in every epoch"],
}  # fmt: skip
RECOMMENDED = {
    "num_workers": 12, "prefetch_factor": 2, "samples_per_s": rate(579.4),
    "call": "DataLoader(dataset, batch_size=256, num_workers=12, prefetch_factor=2, "
            "pin_memory=True, persistent_workers=True)",
}  # fmt: skip
"""What trials of a loader that waits came to."""
WAITING = report(
    SHM_RESULT,
    loader(
        Outcome.FAIL,
        seen(supply_samples_per_s=rate(135.2), num_workers=2, prefetch_factor=2, what_if=WHAT_IF,
             recommended=RECOMMENDED, demand_samples_per_s=600.0, limit_samples_per_s=540.0),
        supply(135.2, 540.0, Outcome.FAIL, cause="the workers waited", blame=Blame.SETUP,
               remedy="set loader.num_workers to 12 (579 +- 23 samples/s when tried, 135 now)"),
    ),
    outcome=Outcome.FAIL, exit_code=1,
)  # fmt: skip
"""Two workers that wait for a server, and what more of them would give."""

FEEDS: dict[str, Report] = {
    "host_only": HOST_ONLY,
    "four_ranks": FOUR_RANKS,
    "no_demand": NO_DEMAND,
    "loop": LOOP,
    "waiting": WAITING,
}
ALL_REPORTS = REPORTS | FEEDS
