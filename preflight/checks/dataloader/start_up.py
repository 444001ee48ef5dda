"""How long the loader took to its first batch, and whether that is worth a word. Pure."""

from __future__ import annotations

from preflight.checks.dataloader.reading import DataloaderLimits, DataloaderReading
from preflight.judge import Miss, at_most
from preflight.model import Finding
from preflight.outcome import Blame, Outcome


def start_up(seen: DataloaderReading, limits: DataloaderLimits) -> list[Finding]:
    """Against a limit of the site's, and against the time that the measuring then took."""
    first_s, rank = seen.first_batch_s, f"rank {seen.rank}"
    findings: list[Finding] = []
    if first_s is None:
        return findings
    if limits.max_first_batch_s is not None:
        cause = f"the first batch came after {first_s:.1f} s"
        remedy = "start fewer workers, or set loader.multiprocessing_context to fork"
        findings.append(
            at_most(
                "dataloader.first_batch", round(first_s, 2), limits.max_first_batch_s, "s",
                Miss(cause, remedy), subject=rank, source=limits.source("max_first_batch_s"),
            )
        )  # fmt: skip
    if not seen.early and first_s > seen.window_s > 0:
        cause = f"the first batch came after {first_s:.1f} s, later than the measuring then took"
        remedy = (
            "nothing is wrong with the rate; start fewer workers, or set "
            "loader.multiprocessing_context to fork, which does not import torch again"
        )
        miss = Miss(cause, remedy, Blame.UNKNOWN, Outcome.WARN)
        findings.append(
            at_most(
                "dataloader.start_up", round(first_s, 1), round(seen.window_s, 1), "s", miss,
                subject=rank,
            )
        )  # fmt: skip
    return findings
