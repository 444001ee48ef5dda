"""Which other settings of a loader are worth a try, given what those before gave. Pure.

Workers first, by doubling towards the number that waits and CPUs suggest, then between the best
and its neighbours; the prefetch factor only where workers stand idle. It knows no loader, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# Rates of a second or two vary by as much on a quiet machine, and fewer workers cost less memory.
_AS_GOOD = 0.97
# Doubling the workers has to bring so much to be done once more.
_RISE = 0.05
# Wall over CPU time of a sample: below it more workers than CPUs cannot help.
_WAITS = 1.2
_FARTHEST = 4  # times the most that was tried: the model is not trusted beyond that
_AIM_APART = 1.25  # nearer than this what the model says is no news
_APART = 1.9  # neighbours nearer than this are not looked between
_SPARE = 1.1  # times the workers that would be enough if each brought as much as those before
_IDLE = 0.1
_MOST_PREFETCH = 8
MOST_TRIALS = 8
"""The loader as it is among them; whoever measures may have no time for so many."""


@dataclass(frozen=True)
class Setting:
    """What a trial changes."""

    num_workers: int
    prefetch_factor: int


@dataclass(frozen=True)
class Seen:
    """What one setting gave."""

    setting: Setting
    samples_per_s: float
    full: bool = False
    """It used all CPUs that it may: more workers cannot be faster."""
    idle: float | None = None
    """Share of the workers' time with nothing to do; None where it is unknown."""


@dataclass(frozen=True)
class Space:
    """Where to look."""

    cpus: float
    """N: those of one rank."""
    fits: Callable[[Setting], bool]
    """Whether there is memory for it, /dev/shm and processes; more of either never fits again."""
    wall_per_cpu: float | None
    """Seconds that a sample takes in a worker over CPU seconds of these; None: unknown."""
    enough_per_s: float = math.inf
    """Samples/s that would surely do: no more workers than these take."""

    @property
    def waits(self) -> bool:
        """Whether a worker waits for something else than a CPU, as far as is known."""
        return self.wall_per_cpu is None or self.wall_per_cpu >= _WAITS


def next_setting(seen: Sequence[Seen], space: Space) -> Setting | None:
    """The setting to try next; None when no other is worth the time.

    Args:
        seen: in order; the first is the loader as it is.
        space: what bounds the search.
    """
    if len(seen) >= MOST_TRIALS:
        return None
    tried = {one.setting for one in seen}
    prefetch = seen[0].setting.prefetch_factor
    line = {one.setting.num_workers: one for one in seen if one.setting.prefetch_factor == prefetch}
    for workers in _workers(line, seen[0].setting.num_workers, space):
        setting = _that_fits(workers, prefetch, line, space)
        if setting is not None and setting not in tried:
            return setting
    setting = _more_prefetch(seen)
    return setting if setting and setting not in tried and space.fits(setting) else None


def chosen(seen: Sequence[Seen], enough_per_s: float = math.inf) -> Seen:
    """The fewest workers that give enough, or are within 3 % of the best; then the least prefetch.

    Args:
        seen: one at least.
        enough_per_s: samples/s beyond which nothing is gained; infinite where that is not known.
    """
    best = max(one.samples_per_s for one in seen)
    good = [one for one in seen if one.samples_per_s >= min(enough_per_s, _AS_GOOD * best)]
    return min(good, key=lambda one: (one.setting.num_workers, one.setting.prefetch_factor))


def _workers(line: Mapping[int, Seen], base: int, space: Space) -> Iterator[int]:
    """Numbers of workers in the order in which they are worth a try."""
    counts = sorted(line)
    rates = {count: line[count].samples_per_s for count in counts}
    at = max(counts, key=lambda count: rates[count])
    place, few = counts.index(at), max(1, math.ceil(space.cpus))
    if space.waits and not line[base].full:
        yield max(2, 2 * base)  # whether waits scale is what tells a server from a lock
    if place == len(counts) - 1 and not line[at].full and _rises(counts, rates, space):
        aim = math.ceil(space.cpus * (space.wall_per_cpu or 1.0)) if space.waits else few
        if rates[at] > 0 and math.isfinite(space.enough_per_s):
            aim = min(aim, math.ceil(_SPARE * space.enough_per_s / rates[at] * max(1, at)))
        near = space.waits and aim < _AIM_APART * at
        yield max(2, 2 * at) if near else min(aim, _FARTHEST * max(1, at))
    if base > few and not space.waits:
        yield few
    falls = len(counts) > 1 and place == 0 and rates[counts[1]] < _AS_GOOD * rates[at]
    if falls and at > 1:
        yield max(1, at // 2)
    if place + 1 < len(counts) and counts[place + 1] >= _APART * at:
        yield _between(at, counts[place + 1])
    if place > 0 and at >= _APART * counts[place - 1]:
        yield _between(counts[place - 1], at)


def _rises(counts: Sequence[int], rates: Mapping[int, float], space: Space) -> bool:
    """Whether the last step up brought enough for another."""
    if not space.waits and counts[-1] >= space.cpus:
        return False
    if len(counts) == 1:
        return True
    below, top = counts[-2:]
    doublings = math.log2(top / max(0.5, below))
    return rates[top] >= rates[below] * (1 + _RISE * doublings)


def _between(one: int, other: int) -> int:
    return max(1, round(math.sqrt(max(1, one) * other)))


def _that_fits(
    workers: int, prefetch: int, line: Mapping[int, Seen], space: Space
) -> Setting | None:
    """The setting, or on the way up the largest one below it that fits."""
    lowest = max((count for count in line if count < workers), default=0)
    for count in range(workers, lowest, -1):
        setting = Setting(count, prefetch)
        if space.fits(setting):
            return setting
    return None


def _more_prefetch(seen: Sequence[Seen]) -> Setting | None:
    """Twice the prefetch factor, where workers have nothing to do though CPUs are free."""
    best = chosen(seen)
    workers, prefetch = best.setting.num_workers, best.setting.prefetch_factor
    if best.full or best.idle is None or best.idle < _IDLE or workers < 1:
        return None
    with_as_many = [one.setting for one in seen if one.setting.num_workers == workers]
    if any(setting.prefetch_factor > prefetch for setting in with_as_many):
        return None  # it was no better
    more = min(_MOST_PREFETCH, 2 * prefetch)
    return Setting(workers, more) if more > prefetch else None
