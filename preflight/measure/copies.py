"""How fast one device copies, piece by piece, and over which link meanwhile.

Two looks count alike: their pieces are pooled, and no look is picked. It knows the device only by
its protocol and limits not at all.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from preflight.gpu_facts import PcieLink
from preflight.measure.device import Copy, Device
from preflight.model import Rate

FEWEST_PIECES = 10
WARM_PIECES = 3
SAMPLE_EVERY_S = 0.02
# What slowed the first look (a neighbour's burst, a link still asleep) should be over.
REST_S = 1.0
_SMALLEST_PIECE = 1 << 20
_MOST_QUEUED = 10  # pieces: a link that slows down meanwhile must not hold us for long

_ASKING_GRACE_S = 1.0

SampleLink = Callable[[], PcieLink | None]


@dataclass(frozen=True)
class Amount:
    """How much is copied."""

    piece_bytes: int
    measure_s: float
    """Each measured copy goes on for at least so long, and for FEWEST_PIECES."""
    wake_s: float
    """Copying that is not counted: an idle GPU's link runs at a lower generation."""


class Copies:
    """Copies on one device; measuring the same copy again adds to what there is."""

    def __init__(
        self,
        device: Device,
        amount: Amount,
        sample_link: SampleLink,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._device, self._amount, self._sample, self._sleep = device, amount, sample_link, sleep
        self._piece_bytes = amount.piece_bytes
        self._awake_s = 0.0
        self._looks: dict[Copy, list[list[float]]] = {}
        self._links: list[PcieLink] = []

    def measure(self, copy: Copy) -> Rate:
        """Warm up and measure; the rate in GB/s (1e9 bytes) of all its looks so far.

        Raises:
            DeviceError: CUDA refused.
        """
        # The link is asked during pinned copies alone: they keep it busy without a pause.
        asked = contextlib.nullcontext() if copy == "pageable_h2d" else self._asking()
        seconds: list[float] = []
        with asked:
            self._warm_up(copy)
            while (pieces := self._missing(seconds)) > 0:
                seconds += self._device.copy_seconds(copy, self._piece_bytes, pieces)
        looks = self._looks.setdefault(copy, [])
        looks.append([self._piece_bytes / piece_s / 1e9 for piece_s in seconds])
        # As many of each look: a fast one has more pieces, and would outvote a slow one.
        fewest = min(map(len, looks))
        return rate_of([rate for look in looks for rate in look[:fewest]])

    def rest(self) -> None:
        """Wait before measuring again; the link may fall asleep meanwhile."""
        self._sleep(REST_S)
        self._awake_s = 0.0
        self._piece_bytes = self._amount.piece_bytes

    def verify(self) -> bool:
        """Whether every byte of a piece came back as it was sent.

        Raises:
            DeviceError: CUDA refused.
        """
        return self._device.verify(self._amount.piece_bytes)

    def link(self) -> PcieLink | None:
        """The best that the link was seen at during pinned copies; None when nobody told."""
        return best(self._links)

    def _warm_up(self, copy: Copy) -> None:
        # Over a link at a hundredth of its speed whole pieces would eat the time. The fastest one
        # decides: a single slow piece says nothing, and small pieces read low.
        fastest, pieces = 0.0, 0
        while pieces < WARM_PIECES or self._awake_s < self._amount.wake_s:
            (piece_s,) = self._device.copy_seconds(copy, self._piece_bytes, 1)
            pieces += 1
            self._awake_s += piece_s
            fastest = max(fastest, self._piece_bytes / piece_s)
            fitting = int(fastest * self._amount.measure_s / FEWEST_PIECES)
            self._piece_bytes = max(_SMALLEST_PIECE, min(self._amount.piece_bytes, fitting))

    def _missing(self, seconds: Sequence[float]) -> int:
        """How many pieces to queue next."""
        if len(seconds) < FEWEST_PIECES:
            return FEWEST_PIECES - len(seconds)
        left_s = self._amount.measure_s - sum(seconds)
        return min(_MOST_QUEUED, math.ceil(left_s / seconds[-1]))

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        over = threading.Event()

        def ask() -> None:
            while True:
                link = self._sample()
                if link is not None:
                    self._links.append(link)
                if over.wait(SAMPLE_EVERY_S):
                    return

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_ASKING_GRACE_S)  # an NVML that hangs must not look like a copy that does


def rate_of(rates: Sequence[float]) -> Rate:
    """Median and 10th and 90th percentile of at least two pieces' rates, in GB/s."""
    tenths = statistics.quantiles(rates, n=10, method="inclusive")
    return Rate(
        value=round(statistics.median(rates), 3), low=round(tenths[0], 3),
        high=round(tenths[-1], 3), unit="GB/s", blocks=len(rates), discarded=0,
        samples=tuple(round(rate, 3) for rate in rates),
    )  # fmt: skip


def best(links: Sequence[PcieLink]) -> PcieLink | None:
    """Field by field the highest that was told; None when there is nothing."""
    if not links:
        return None

    def highest(name: str) -> int | None:
        told = [value for link in links if (value := getattr(link, name)) is not None]
        return max(told, default=None)

    return PcieLink(**{name: highest(name) for name in PcieLink.model_fields})
