"""What the job's own data set may do wrong, by what torch says then. Pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One. `does` goes on with "loading from job:make ..."."""

    patterns: tuple[str, ...]
    does: str
    remedy: str


FAULTS = (
    Fault(
        patterns=(
            "stack expects each tensor to be equal size",  # torch 2.13, default_collate
            "Trying to resize storage that is not resizable",  # the same, in a worker
            "each element in list of batch should be of equal size",
            "batch must contain tensors, numpy arrays, numbers",
        ),
        does="gives samples that do not fit into one batch",
        remedy="pad or crop them to one size, or return a DataLoader with a collate_fn that does",
    ),
    Fault(
        patterns=(
            "Cannot re-initialize CUDA in forked subprocess",  # pytorch/pytorch#40403
            "CUDA error: initialization error",
        ),
        does="uses CUDA in a worker that was forked after CUDA had started",
        remedy="keep CUDA out of the data set and its module: load on the CPU and copy in the "
        "training loop, or set multiprocessing_context to spawn",
    ),
)
