"""The five outcomes and the one rule that combines them. They never blur into each other."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Outcome(str, Enum):
    """What a finding, a result or a run came to."""

    PASS = "pass"
    WARN = "warn"  # works, but worth a look
    FAIL = "fail"  # a limit was missed beyond doubt, or a cause the tables name
    SKIP = "skip"  # does not apply here; always with a reason
    ERROR = "error"  # could not be measured or decided

    def __str__(self) -> str:
        return self.value


class Blame(str, Enum):
    """Who has to act on a fail or an error."""

    NODE = "node"  # driver, library, GPU or local disk of this machine: needs positive evidence
    IMAGE = "image"  # what the container image carries
    SETUP = "setup"  # how the container or the job was started
    DATA = "data"  # the data set
    SHARED = "shared"  # file server, object store, neighbours, hypervisor
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


# A proven bad node outranks an unproven one; a skip counts only when there is nothing else.
_RANK = (Outcome.SKIP, Outcome.PASS, Outcome.WARN, Outcome.ERROR, Outcome.FAIL)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome that speaks for all of them; SKIP when there are none."""
    return max(outcomes, key=_RANK.index, default=Outcome.SKIP)
