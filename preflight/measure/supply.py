"""Runs the job's DataLoader and watches how fast samples are finished, until the rate is clear.

It only measures: what the rate is worth is judged elsewhere. Importing this file imports torch.
"""

from __future__ import annotations

import tempfile

from preflight.checks.contract import Unit
from preflight.measure.burner import burning
from preflight.measure.counters import Counters
from preflight.measure.drain import Drain, build_loader
from preflight.measure.samples import find
from preflight.measure.watch import Emit, Fields, Watch


def measure(unit: Unit, limit_samples_per_s: float, emit: Emit) -> Fields:
    """The fields of the check's reading; `emit` gets them while the run goes on.

    Raises:
        Exception: whatever the loader or one of its workers raised.
    """
    found = find(unit)  # before the others are waited for: it takes CPU time that is nobody's load
    unit.ready()
    if found.source is None:
        return {"data_state": found.state}
    job = unit.job
    pace = job.pace_ratio and job.pace_ratio * (
        unit.limits.demand_samples_per_s or limit_samples_per_s
    )
    files = {"files": len(found.source), "paced_samples_per_s": pace}
    with burning(job.consumer.host_cpus) as burners:
        counters = Counters.create(job.num_workers)
        unit.progress(f"starting {job.num_workers} workers")
        # Workers hand tensors over through sockets in it; without one the loader waits for ever.
        tempfile.gettempdir()
        watch = Watch(
            unit, limit_samples_per_s, lambda fields: emit({**fields, **files}), counters, burners,
            workers=job.num_workers, batch_size=job.loader.batch_size,
            prefetch_factor=job.loader.prefetch_factor,
        )  # fmt: skip
        pin_memory = job.loader.pin_memory and bool(unit.facts.gpus)
        loader = build_loader(job, found.source, counters, pin_memory)
        drain = Drain(loader, pace and pace / job.loader.batch_size)
        fields = {**watch.until_clear(drain), **files}
        decision = fields["decision"]
        if job.ranks > 1:
            emit(fields)  # what is found stands, whatever becomes of the others
        watch.for_the_others(reached=decision is not None and decision.verdict == "reached")
        drain.stop()
        return fields
