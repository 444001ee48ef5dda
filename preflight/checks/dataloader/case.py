"""One rank's reading as the table of causes asks it: shares and ratios, 0 where nothing is known.

Pure. Every number is defined for every reading, so that no row of the table can raise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from preflight.checks.dataloader.evidence import Trial
from preflight.checks.dataloader.reading import DataloaderReading

_LEAST_PER_S = 1e-3
_MORE = 1.5  # times the workers: less is too little to tell what more of them do
_NETWORK = ("socket", "poll")  # a client with a time limit polls its socket
_IDLE = ("sleep", "pipe", "other")


@dataclass(frozen=True)
class Case:
    """A rank that does not reach its limit for sure, and the readings of all ranks."""

    seen: DataloaderReading
    readings: tuple[DataloaderReading, ...]

    @property
    def missed(self) -> bool:
        """The supply is too small beyond doubt, what neighbours took taken into account."""
        return self.seen.decision is not None and self.seen.decision.verdict == "missed"

    @property
    def rate(self) -> float:
        """Samples/s of this rank; 0 where it is not known, or too small to reckon with."""
        rate = self.seen.supply_samples_per_s
        return 0.0 if rate is None or rate.value < _LEAST_PER_S else rate.value

    @property
    def needed(self) -> float:
        """Samples/s that would be enough."""
        return self.seen.demand_samples_per_s or self.seen.limit_samples_per_s

    @property
    def workers(self) -> int:
        """Of all ranks; a loader without workers is one."""
        return self.seen.ranks * max(1, self.seen.num_workers)

    @property
    def cpus(self) -> float:
        """That all ranks may use."""
        return max(self.seen.effective_cpus, 0.01)

    @property
    def others(self) -> float:
        """Share of the CPUs that neighbours took."""
        return self.seen.disturbed_share or 0.0

    @property
    def own(self) -> float:
        """Share of the CPUs that we used, of what others left."""
        return (self.seen.own_cpu_share or 0.0) / max(1 - self.others, 0.01)

    @property
    def steal(self) -> float:
        """Share of the CPUs that the hypervisor kept."""
        return (self.seen.steal_percent or 0.0) / 100

    def share(self, name: str) -> float:
        """A share of the evidence, by its name there; 0 where it is not known."""
        return getattr(self.seen.evidence, name, None) or 0.0

    @property
    def never_waits(self) -> float:
        """Share of a worker's time on a CPU or waiting for one."""
        return min(1.0, self.share("worker_cpu_share") + self.share("worker_delay_share"))

    @property
    def between(self) -> float:
        """Share of a worker's time in neither the data set nor collate; 0 where not known."""
        seen = self.seen.evidence
        if seen is None or seen.getitem_share is None or seen.collate_share is None:
            return 0.0
        return max(0.0, 1 - seen.getitem_share - seen.collate_share)

    @property
    def helpers(self) -> float:
        """Share of the workers' CPU time that the loading thread used in neither of the two."""
        total = self.share("worker_cpu_share")
        loading = self.share("getitem_share") * self.share("getitem_cpu_share")
        return 1 - (loading + self.share("collate_cpu_share")) / total if total else 0.0

    def wait(self, kind: str) -> float:
        """Share of a worker's time inside the data set, waiting: by one kind of Evidence.waits."""
        return self.seen.evidence.waits.get(kind, 0.0) if self.seen.evidence else 0.0

    @property
    def waits(self) -> dict[str, float]:
        """What a worker waits for inside the data set, the longest first."""
        groups = {
            "disk": max(self.wait("disk"), self.share("disk_wait_share")),
            "network": sum(map(self.wait, _NETWORK)),
            "lock": self.wait("lock"),
            "idle": sum(map(self.wait, _IDLE)),
        }
        return dict(sorted(groups.items(), key=lambda item: -item[1]))

    @property
    def longest_wait(self) -> str:
        """The first of `waits`."""
        return next(iter(self.waits))

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Other settings that were tried, with the prefetch factor that was measured."""
        tried = next((r for r in self.readings if r.what_if and r.what_if.trials), None)
        if tried is None or tried.what_if is None:
            return ()
        same = self.seen.prefetch_factor
        return tuple(t for t in tried.what_if.trials if same is None or t.prefetch_factor == same)

    @property
    def as_tried(self) -> float:
        """The rate at the measured settings, where the trials have it, since they ran alone."""
        own = (t for t in self.trials if t.num_workers == self.seen.num_workers)
        return next((t.samples_per_s.value for t in own), self.rate)

    @property
    def more(self) -> Trial | None:
        """The trial with more workers that gained most by each doubling of them."""
        more = [t for t in self.trials if t.num_workers >= _MORE * max(1, self.seen.num_workers)]
        return max(more, key=self._gain, default=None)

    @property
    def scaling(self) -> float | None:
        """S(2W) / S(W): 2 where more workers only help, 1 where they do not; None: not tried."""
        return None if self.more is None or self.as_tried <= 0 else self._gain(self.more)

    def _gain(self, trial: Trial) -> float:
        doublings = math.log2(trial.num_workers / max(1, self.seen.num_workers))
        ratio = trial.samples_per_s.value / max(self.as_tried, _LEAST_PER_S)
        return float(min(100.0, max(0.01, ratio)) ** (1 / doublings))

    @property
    def fewer(self) -> Trial | None:
        """The best trial with fewer workers."""
        fewer = [t for t in self.trials if t.num_workers < self.seen.num_workers]
        return max(fewer, key=lambda t: t.samples_per_s.value, default=None)

    @property
    def other_ranks(self) -> float:
        """The median rate of the other ranks; 0 without any."""
        rates = [
            r.supply_samples_per_s.value
            for r in self.readings
            if r.rank != self.seen.rank and r.supply_samples_per_s is not None
        ]
        return median(rates) if rates else 0.0
