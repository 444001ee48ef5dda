"""A copy's rate against what the PCIe link carries. Pure."""

from __future__ import annotations

from preflight.checks.pinned_copy import link
from preflight.checks.pinned_copy.cause import of_slow
from preflight.checks.pinned_copy.reading import PinnedCopyLimits, PinnedCopyReading
from preflight.judge import Miss, at_least, missed
from preflight.model import Finding, Rate
from preflight.outcome import Blame, Outcome


def fraction(
    direction: str, rate: Rate, seen: PinnedCopyReading, limits: PinnedCopyLimits
) -> Finding:
    """The rate against the link model: under one fraction it fails, under the other it warns."""
    id = f"pinned_copy.{direction}_fraction"
    if seen.no_link_verdict is not None:
        return skipped(id, seen, seen.no_link_verdict, rate)
    if seen.link is None:
        return _unjudged(id, seen, rate)
    gen, width = seen.link.gen, seen.link.width
    full = link.model_gb_per_s(gen, width, limits)
    passed = None
    for key, fractions, outcome in (
        ("min_fraction_of_link_by_gen", limits.min_fraction_of_link_by_gen, Outcome.FAIL),
        ("warn_fraction_of_link_by_gen", limits.warn_fraction_of_link_by_gen, Outcome.WARN),
    ):
        fraction = fractions.get(str(gen))
        if full is None or fraction is None:
            continue
        under = (
            f"under {fraction:.0%} of the {full:g} GB/s that a link of {link.name(gen, width)} "
            "carries"
        )
        finding = at_least(
            id, rate.value, round(fraction * full, 2), "GB/s", of_slow(seen, under, outcome),
            subject=seen.subject, source=limits.source(f"{key}.{gen}"),
        )  # fmt: skip
        if finding.outcome is outcome:
            return finding
        passed = passed or finding
    nothing = f"there are no limits for a link of {link.name(gen, width)}"
    return passed or skipped(id, seen, nothing, rate)


def _unjudged(id: str, seen: PinnedCopyReading, rate: Rate) -> Finding:
    """A GPU that should have a PCIe link, and nobody tells which."""
    miss = Miss(
        "neither NVML nor the node's files tell the GPU's PCIe link: the copy cannot be judged",
        "run nvidia-smi -q -d PCIE in the container, or set a floor of your own "
        "(pinned_copy.min_h2d_gb_per_s, min_d2h_gb_per_s)",
        Blame.UNKNOWN, Outcome.WARN,
    )  # fmt: skip
    return missed(
        Finding(
            id=id, outcome=Outcome.WARN, subject=seen.subject, observed=rate.value, unit="GB/s"
        ),
        miss,
    )


def steady(seen: PinnedCopyReading, limits: PinnedCopyLimits) -> list[Finding]:
    """A median can hide that every other piece crawls."""
    bound = None if seen.link is None else link.fail_under(seen.link, limits)
    if seen.no_link_verdict is not None or bound is None:
        return []
    rates = [rate for rate in (seen.h2d_gb_per_s, seen.d2h_gb_per_s) if rate is not None]
    slowest = min((rate.low for rate in rates if rate.low is not None), default=None)
    if slowest is None or any(rate.value < bound for rate in rates):
        return []  # the fraction says it already
    miss = Miss(
        "a tenth of the pieces or more copied slower than the link's limit, though the median "
        "reaches it",
        "repeat on the idle node; if it stays, look for PCIe errors (AER) in the host's dmesg",
        Blame.UNKNOWN, Outcome.WARN,
    )  # fmt: skip
    return [
        at_least(
            "pinned_copy.steady", slowest, round(bound, 2), "GB/s", miss, subject=seen.subject
        )
    ]  # fmt: skip


def skipped(id: str, seen: PinnedCopyReading, reason: str, rate: Rate | None = None) -> Finding:
    """Not judged, for a reason; the rate is told all the same."""
    finding = Finding(id=id, outcome=Outcome.SKIP, subject=seen.subject, cause=reason)
    if rate is None:
        return finding
    return finding.model_copy(update={"observed": rate.value, "unit": "GB/s"})
