"""Many starts of a measurement over one recorded loader: real windows and verdicts, no new workers.

A start at any recorded look is what the check would have seen had its workers been ready then; the
warm-up second is dropped anew each time. Starts share seconds, so their verdicts are not
independent. Pure: looks in, verdicts out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from preflight.facts import Cpu, Load
from preflight.job import Job
from preflight.measure.blocks import BlockMaker, Look
from preflight.measure.window import Progress, Window

UNDER, OVER = 0.85, 1.15
"""Limits as shares of the true rate."""
WRONG = {UNDER: "missed", OVER: "reached"}
MOST_DRIFT = 0.03
"""Quiet references that differ by more leave the true rate unknown."""


@dataclass(frozen=True)
class Moment:
    """A recorded look: cumulative."""

    finished: int
    batches: int
    load: Load


@dataclass(frozen=True)
class Setup:
    """What a window needs to know of the loader that was recorded."""

    job: Job
    cpu: Cpu
    main_pid: int


@dataclass
class Tally:
    """What the starts came to, by limit (as a share of the true rate)."""

    verdicts: dict[float, Counter[str]] = field(
        default_factory=lambda: {UNDER: Counter(), OVER: Counter()}
    )
    blocks: list[int] = field(default_factory=list)
    """To a verdict, where there was one."""

    def wrong(self) -> int:
        """Verdicts that must not be given."""
        return sum(self.verdicts[limit][verdict] for limit, verdict in WRONG.items())

    def undecided(self) -> int:
        """Verdicts that are none; a close one is a warning, and counts as given."""
        return sum(counter["undecided"] for counter in self.verdicts.values())

    def starts(self) -> int:
        """How many verdicts were asked for."""
        return sum(counter.total() for counter in self.verdicts.values())


def rate(moments: Sequence[Moment]) -> float:
    """Samples/s from the first look to the last."""
    first, last = moments[0], moments[-1]
    return (last.finished - first.finished) / (last.load.at_s - first.load.at_s)


def disturbed_share(moments: Sequence[Moment], setup: Setup) -> float:
    """Time-weighted mean disturbance of a recording, as the check reckons it."""
    job = setup.job
    maker = BlockMaker(
        cpus=setup.cpu.effective, block_s=job.stats.block_s, cfs_period_s=setup.cpu.period_s,
        workers=job.num_workers, main_pid=setup.main_pid,
    )  # fmt: skip
    blocks = [block for m in moments if (block := maker.add(Look(m.finished, m.load)))]
    return sum(b.f * b.dt_s for b in blocks) / sum(b.dt_s for b in blocks)


def truth(before: Sequence[Moment], after: Sequence[Moment], setup: Setup) -> float | None:
    """The mean of two quiet references; None when they were not quiet or do not agree."""
    rates = rate(before), rate(after)
    shares = disturbed_share(before, setup), disturbed_share(after, setup)
    if max(shares) >= setup.job.stats.max_disturbance or max(rates) > (1 + MOST_DRIFT) * min(rates):
        return None
    return sum(rates) / len(rates)


def replay(moments: Sequence[Moment], setup: Setup, true_rate: float, tally: Tally) -> None:
    """Add a verdict on each limit for every look that has a whole longest window after it."""
    stats = setup.job.stats
    longest_s = stats.warmup_s + stats.max_s + 2 * stats.block_s
    for number, moment in enumerate(moments):
        if moments[-1].load.at_s - moment.load.at_s < longest_s:
            return
        for share in (UNDER, OVER):
            verdict, blocks = _start(moments[number:], setup, share * true_rate)
            tally.verdicts[share][verdict] += 1
            if verdict in ("reached", "missed"):
                tally.blocks.append(blocks)


def _start(moments: Sequence[Moment], setup: Setup, limit: float) -> tuple[str, int]:
    job = setup.job
    batch = job.loader.batch_size
    window = Window(
        job.stats, setup.cpu, limit, setup.main_pid, workers=job.num_workers,
        in_flight=job.num_workers * job.loader.prefetch_factor * batch,
    )  # fmt: skip
    first = moments[0]
    for moment in moments:
        decision = window.add(
            Progress(
                look=Look(moment.finished - first.finished, moment.load),
                delivered=(moment.batches - first.batches) * batch,
                all_started_at=first.load.at_s,
                all_finished_one=True,
            )
        )
        if decision is not None:
            return decision.verdict, decision.blocks
    raise ValueError("the recording is shorter than stats.max_s")
