"""What a check is. Read this first when you add one.

A check module defines its `Limits` (one section of a threshold file), its `Reading` (what it saw),
`observe` (may block, may raise Unavailable; never judges), `judge` (pure: the same readings and
limits always give the same findings), and binds them in one object called CHECK whose id is the
module's name. Everything else follows: discovery, command line, thresholds, reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from preflight.facts import Facts
from preflight.job import Job, Section
from preflight.model import Finding

if TYPE_CHECKING:
    from preflight.machine.root import Root
    from preflight.scratch import Scratch

FanOut = Literal["none", "rank"]


class Limits(Section):
    """One threshold section. No default may decide a verdict: numbers come from the files."""

    required: bool = Field(description="false lowers this check's fail and error to a warning")
    timeout_s: float = Field(gt=0, description="the check is stopped after so long")
    sources: dict[str, str] | None = Field(
        default=None, description="filled in: where each limit that names its source comes from"
    )

    def source(self, name: str) -> str | None:
        """The source that the threshold file names for one limit."""
        return (self.sources or {}).get(name)


class Reading(BaseModel):
    """What a check saw, with units in the field names."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


class Unavailable(Exception):
    """The check could not be measured here; the text says why and what to do."""


@dataclass(frozen=True)
class Unit:
    """One unit of a check's work: what `observe` is given."""

    subject: str | None
    machine: Root
    limits: Any
    job: Job
    facts: Facts
    earlier: Mapping[str, Any]
    scratch: Scratch
    """A folder to write to, removed at every end."""
    emit: Callable[[Any], None] = lambda reading: None
    """Report a partial reading; it replaces the last one and stands if the unit is cut off."""
    progress: Callable[[str], None] = lambda text: None
    """Say what is being done; the last words of a unit that hangs."""
    started: Callable[[], None] = lambda: None
    """Say that imports are done: from here on the check's own time limit counts."""


LimitsT = TypeVar("LimitsT", bound=Limits)
ReadingT = TypeVar("ReadingT", bound=Reading)


@dataclass(frozen=True)
class Check(Generic[LimitsT, ReadingT]):
    """One check: identity, needs, and the two functions."""

    id: str
    title: str
    about: str
    """What it measures and why it matters, for `preflight explain`."""
    limits: type[LimitsT]
    reading: type[ReadingT]
    findings: Mapping[str, str]
    """Every finding id it can give (without the check's own id), with the usual remedy."""
    observe: Callable[[Unit], ReadingT]
    judge: Callable[[Sequence[ReadingT], LimitsT], list[Finding]]
    applies: Callable[[Facts, LimitsT], str | None] = lambda facts, limits: None
    """Why the check does not apply to this machine, or None."""
    needs: tuple[str, ...] = ()
    """Checks that must not have failed for this one to say anything."""
    uses: tuple[str, ...] = ()
    """Checks whose readings are taken when they are there."""
    fan_out: FanOut = "none"
    isolate: bool = True
    """Run `observe` in a process of its own, which may be killed."""
