"""How soon a clear case is clear: the dataloader check's own time, imports of torch included.

The demand is set to 0.3 and to 3 times what the node supplies. A loader 30 % under its limit is
timed beside them, without a bound: it is not hopeless, so two windows have to agree.
"""

from __future__ import annotations

from bench.command import Ran, gate
from bench.table import Row

_RUNS = 2
_BOUND_S = 10.0


def measure(repeat: int) -> list[Row]:
    """One row for each kind of verdict."""
    supply = supply_of(gate())
    cases = (
        ("clear pass (demand 0.3 x)", 0.3, "reached", _BOUND_S, _RUNS),
        ("clear fail (demand 3 x)", 3.0, "missed", _BOUND_S, _RUNS),
        ("30 % under the limit", 1 / 0.7 / 0.9, "missed", None, 1),
    )
    return [
        row(name, [_verdict(supply * factor) for _ in range(runs * repeat)], wanted, bound_s)
        for name, factor, wanted, bound_s, runs in cases
    ]


def row(name: str, runs: list[Ran], wanted: str, bound_s: float | None) -> Row:
    """The slowest run; no number unless every one came to the `wanted` verdict."""
    number = f"loader verdict: {name}"
    verdicts = [run.verdict for run in runs]
    if any(verdict != wanted for verdict in verdicts):
        text = ", ".join(verdicts)
        return Row(number, None, "s", at_most=bound_s, note=f"wanted {wanted}, came to {text}")
    seconds = max(float(run.loader["duration_s"]) for run in runs)
    return Row(number, seconds, "s", at_most=bound_s, note=f"slowest of {len(runs)}, all {wanted}")


def supply_of(run: Ran) -> float:
    """Samples/s that a run saw."""
    return float(run.loader["reading"]["supply_samples_per_s"]["value"])


def _verdict(demand_samples_per_s: float) -> Ran:
    return gate("--set", f"dataloader.demand_samples_per_s={demand_samples_per_s:.1f}")
