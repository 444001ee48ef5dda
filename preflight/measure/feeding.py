"""Runs the job's loader under an emulated training loop, and watches how busy the GPU would be.

The same watching as of the bare loader, but what counts are the samples of steps that were done.
It only measures. Importing this file imports torch.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from torch.utils.data import DataLoader

from preflight.checks.contract import Unit
from preflight.measure.burner import burning
from preflight.measure.closing import end_workers, worker_pids
from preflight.measure.loader import OpenLoader, open_loader
from preflight.measure.training_loop import TrainingLoop
from preflight.measure.watch import Emit, Fields, Watch


def measure(
    unit: Unit, limit_samples_per_s: float, supply_samples_per_s: float, emit: Emit
) -> Fields:
    """The fields of the check's reading; `emit` gets them while the run goes on.

    Raises:
        Unavailable: there is nothing that can be loaded.
        Exception: whatever the loader or one of its workers raised.
    """
    job, limits = unit.job, unit.limits
    opened = open_loader(unit, unit.rank)
    unit.ready()
    batch_size = opened.batch_size
    assert batch_size is not None  # the check has seen to it
    with burning(job.consumer.host_cpus) as burners:
        unit.progress(f"starting {opened.workers} workers")
        tempfile.gettempdir()  # as in `supply`
        watch = Watch(unit, limit_samples_per_s, emit, opened, burners)
        loop = TrainingLoop(
            opened.loader, batch_size=batch_size, step_s=batch_size / limits.demand_samples_per_s,
            jitter_percent=limits.step_jitter_percent, sync_every_step=limits.sync_every_step,
            seed=job.seed,
        )  # fmt: skip
        fields = watch.until_clear(loop)
        decision = fields["decision"]
        stalls = loop.stalls(watch.opened_at_s)
        fields["stalled_steps_percent"] = round(stalls.stalled_percent, 2)
        fields["longest_stall_s"] = round(stalls.longest_s, 4)
        emit(fields)
        watch.for_the_others(reached=decision is not None and decision.verdict == "reached")
        fields["au_percent"] = _au_percent(unit, loop)
        loop.stop()
        watch.budget.look(watch.workers())
        fields["read_gib"] = watch.budget.read_gib
        end_workers(worker_pids())
    if watch.budget.spent:
        return fields
    return {**fields, **_new_epochs(unit, opened, supply_samples_per_s)}


def _au_percent(unit: Unit, loop: TrainingLoop) -> float | None:
    """How busy the device is when the host waits for every step, as in MLPerf Storage's loop."""
    seconds = unit.limits.serial_s
    if not seconds or loop.error is not None:
        return None
    unit.progress("the same, waiting for every step")
    loop.sync_every_step = True
    began = time.monotonic()
    time.sleep(seconds)
    return round(100 * loop.busy_share(began, time.monotonic()), 2)


def _new_epochs(unit: Unit, opened: OpenLoader, supply_samples_per_s: float) -> Fields:
    """Seconds from an epoch's last batch to the next one's first, with and without new workers."""
    found: Fields = {}
    names = {"new_epoch_s": True, "new_epoch_restarted_s": False}
    batches = 2 * max(1, opened.workers)
    for name, persistent in names.items():
        loader = opened.epoch_of(batches, persistent_workers=persistent)
        takes_s = 2 * batches * (opened.batch_size or 1) / supply_samples_per_s
        if loader is None or takes_s > unit.limits.max_epoch_s:
            return {}
        unit.progress("two short epochs" + ("" if persistent else ", with new workers"))
        found[name] = round(_gap_s(loader), 4)
    return found


def _gap_s(loader: DataLoader[Any]) -> float:
    epoch = iter(loader)
    for _ in epoch:
        last = time.monotonic()
    epoch = iter(loader)
    next(epoch)
    gap_s = time.monotonic() - last
    end_workers(worker_pids())
    return gap_s
