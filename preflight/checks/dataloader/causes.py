"""The table of causes: what must hold of the evidence, what is then said, and whom it blames.

Pure. The first row that holds is the cause; the last one always does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from preflight.checks.dataloader import advice, more, signs, told
from preflight.checks.dataloader.case import Case
from preflight.outcome import Blame


@dataclass(frozen=True)
class Cause:
    """A row."""

    id: str
    holds: Callable[[Case], bool]
    sentence: Callable[[Case], str]
    remedy: Callable[[Case], str]
    blame: Blame = Blame.SETUP


def find(case: Case) -> Cause:
    """The row for this case. Never raises; there is always one."""
    return next(row for row in CAUSES if row.holds(case))


CAUSES: tuple[Cause, ...] = (
    Cause("slow_rank", signs.slow_rank, told.rank_alone, advice.compare_ranks, Blame.UNKNOWN),
    Cause(
        "cpu_weight", lambda c: signs.disturbed(c) and signs.light(c), told.light, advice.heavier
    ),
    Cause("neighbours", signs.disturbed, told.others_used, advice.keep_off, Blame.SHARED),
    Cause("cpu_quota", signs.quota, told.used_quota, more.cpus),
    Cause("steal", signs.stolen, told.stolen, advice.own_host, Blame.SHARED),
    Cause("too_many_workers", signs.crowded, told.crowded, more.fewer_workers),
    Cause("tiny_samples", signs.tiny, told.tiny, advice.whole_batches),
    Cause("transport", signs.collates, told.collates, advice.smaller),
    Cause("helper_threads", signs.threads, told.threads, advice.fewer_threads),
    Cause("cpus", signs.cpu_bound, told.used_cpus, advice.more_cpus_or_less_work),
    Cause("few_workers", signs.busy, told.few, more.workers),
    Cause(
        "pin_memory", lambda c: signs.idle_workers(c) and bool(c.seen.pin_memory),
        told.pins, advice.less_to_pin,
    ),
    Cause("main_process", signs.idle_workers, told.waits_for_work, advice.relieve_main),
    Cause("lock", signs.lock, told.locked, advice.unlock),
    Cause(
        "storage_unaccounted", lambda c: signs.reads(c) and signs.served_elsewhere(c),
        told.reads_elsewhere, advice.nearer, Blame.SHARED,
    ),
    Cause("storage", signs.reads, told.reads, advice.faster_disk, Blame.UNKNOWN),
    Cause("remote_latency", lambda c: signs.remote(c) and signs.scales(c), told.asks, more.hide),
    Cause(
        "remote_saturated", lambda c: signs.remote(c) and signs.does_not(c),
        told.asks, advice.faster_server, Blame.SHARED,
    ),
    Cause("remote", signs.remote, told.asks, more.try_more, Blame.UNKNOWN),
    Cause("latency", signs.latency, told.sleeps, more.hide),
    Cause("few_workers", signs.room, told.few, more.workers),
    Cause("unknown", lambda c: True, told.what_was_seen, advice.look_closer, Blame.UNKNOWN),
)  # fmt: skip
