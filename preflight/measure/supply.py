"""Runs the job's DataLoader and watches how fast samples are finished, until the rate is clear.

It only measures: what the rate is worth is judged elsewhere. Importing this file imports torch.
"""

from __future__ import annotations

import tempfile
import time

from preflight.checks.contract import Unit
from preflight.checks.dataloader import check_memory
from preflight.machine.process_memory import most_private_gib
from preflight.measure.alone import measure_alone
from preflight.measure.burner import burning
from preflight.measure.closing import end_workers
from preflight.measure.drain import Drain
from preflight.measure.loader import NoSamples, OpenLoader, open_loader
from preflight.measure.stage_rates import limiting
from preflight.measure.stages import one
from preflight.measure.trials import AsItIs, what_if
from preflight.measure.watch import Emit, Fields, Watch
from preflight.model import Rate

# What the stages may need of the check's time limit after the trials, and the end of it all.
_STAGES_S = 20.0


def measure(unit: Unit, limit_samples_per_s: float, emit: Emit) -> Fields:
    """The fields of the check's reading; `emit` gets them while the run goes on.

    Raises:
        Unavailable: --dataset gives nothing that can be loaded, or more than memory holds.
        Exception: whatever the loader or one of its workers raised.
    """
    job = unit.job
    try:  # before the others are waited for: it takes CPU time that is nobody's load
        opened = open_loader(unit, unit.rank)
    except NoSamples as none:
        unit.ready()
        return {"data_state": none.state}
    if job.dataset is not None:  # with more workers, maybe, than was planned
        check_memory(opened.as_job(job), unit.limits, unit.facts)
    unit.ready()
    ends_at = time.monotonic() + float(unit.limits.timeout_s) - _STAGES_S
    batch_size = opened.batch_size
    pace = job.pace_ratio and job.pace_ratio * (
        unit.limits.demand_samples_per_s or limit_samples_per_s
    )
    files = {**opened.fields(), "paced_samples_per_s": pace if batch_size else None}
    with burning(job.consumer.host_cpus) as burners:
        unit.progress(f"starting {opened.workers} workers")
        # Workers hand tensors over through sockets in it; without one the loader waits for ever.
        tempfile.gettempdir()
        watch = Watch(
            unit, limit_samples_per_s, lambda fields: emit({**fields, **files}), opened, burners
        )
        emit({})  # whatever happens now, the report says what was started
        drain = Drain(opened.loader, pace / batch_size if pace and batch_size else None)
        fields = {**watch.until_clear(drain), **files}
        decision, costs = fields["decision"], watch.costs()
        if job.ranks > 1:
            emit(fields)  # what is found stands, whatever becomes of the others
        watch.for_the_others(reached=decision is not None and decision.verdict == "reached")
        explained = watch.explains() and (job.explain or not watch.all_reached())
        if explained and job.ranks > 1:
            fields["alone_samples_per_s"] = watch.alone()
        now = AsItIs(
            opened, fields["blocks"], costs, fields["first_batch_s"],
            most_private_gib(unit.machine, watch.workers()) if explained else None,
            watch.budget, files["paced_samples_per_s"],
        )  # fmt: skip
        drain.stop()
        fields["read_gib"] = watch.budget.read_gib
    if explained and end_workers(watch.workers()):
        emit(fields)  # the verdict stands if a trial or a stage is cut off
        # First: a data set that a stage has used in this process may not bear being forked.
        until = min(time.monotonic() + unit.limits.what_if_s, ends_at)
        fields |= what_if(unit, now, until)._asdict()
        fields["read_gib"] = watch.budget.read_gib
        emit(fields)
        fields |= _stages(unit, opened, fields["supply_samples_per_s"])
    return fields


def _stages(unit: Unit, opened: OpenLoader, supply: Rate | None) -> Fields:
    """Each stage alone, now that all loaders have ended."""
    devices = unit.facts.cuda_devices()
    gpu = devices[unit.rank].subject if unit.rank < len(devices) else None
    seen = measure_alone(unit, opened.torch_loader, opened.source, gpu, opened.samples_in or one)
    return {
        "stages": seen.stages,
        "limiting_stage": limiting(seen.stages, None if supply is None else supply.value),
        "stages_missing": {stage.name: stage.reason for stage in seen.missing},
    }
