"""What a check is. Read this first when you add one.

A check module defines its `Limits` (one section of a threshold file), its `Reading` (what it saw),
`observe` (may block, may raise Unavailable; never judges), `judge` (pure: the same readings and
limits always give the same findings), and binds them in one object called CHECK whose id is the
module's name. Everything else follows: discovery, command line, thresholds, reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from preflight.facts import Facts
from preflight.gpu_facts import CudaDevice
from preflight.job import Job, Section
from preflight.model import Finding

if TYPE_CHECKING:
    from preflight.machine.root import Root
    from preflight.roster import Roster
    from preflight.scratch import Scratch

FanOut = Literal["none", "gpu", "rank"]


class Limits(Section):
    """One threshold section. No default may decide a verdict: numbers come from the files."""

    required: bool = Field(description="false lowers this check's fail and error to a warning")
    timeout_s: float = Field(gt=0, description="its work, or NVML's for it, has so long")
    sources: dict[str, str] | None = Field(
        default=None, description="filled in: where each limit that names its source comes from"
    )

    def source(self, name: str) -> str | None:
        """The source that the threshold file names for one limit."""
        return (self.sources or {}).get(name)


class DemandLimits(Limits):
    """A section that is held against what the GPU consumes; `settings.derived` fills most of it."""

    demand_samples_per_s: float | None = Field(default=None, gt=0, description="per rank")
    demand_from: str | None = Field(default=None, description="filled in: set, site or gpu table")
    reference_demand_samples_per_s: float | None = Field(
        default=None, gt=0, description="filled in: the GPU table's figure for the reference image"
    )
    multi_gpu_demand_samples_per_s: float | None = Field(
        default=None, gt=0, description="filled in: of each of several that train together"
    )
    multi_gpu_demand_from: str | None = Field(
        default=None, description="filled in: the table's own figure, or one GPU's times a ratio"
    )

    def at_ranks(self, ranks: int) -> DemandLimits:
        """With the demand of each of so many GPUs, where the GPU table gave it.

        GPUs that wait for each other's gradients consume less than one alone. What a site or
        --set states is per rank already, and stays.
        """
        together = self.multi_gpu_demand_samples_per_s
        if ranks == 1 or together is None:
            return self
        if self.demand_samples_per_s is None:
            return self.model_copy(update={"reference_demand_samples_per_s": together})
        origin = f"{self.multi_gpu_demand_from} ({ranks} ranks)"
        return self.model_copy(update={"demand_samples_per_s": together, "demand_from": origin})


class Reading(BaseModel):
    """What a check saw, with units in the field names."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


class Unavailable(Exception):
    """The check could not be measured here; the text says why and what to do."""


class Failed(Exception):
    """The measuring broke, and this says all there is to say: no traceback is printed.

    `kind` names a row of `diagnosis.loader_failures`; where none fits better, its words are these.
    """

    def __init__(self, kind: str, cause: str, remedy: str = "") -> None:
        super().__init__(f"{kind}: {cause}\n{remedy}".rstrip())


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
    ready: Callable[[], None] = lambda: None
    """Say that imports are done and wait for the others, or for one's turn (see Check.turns): from
    here on the check's own time limit counts."""

    rank: int = 0
    """Which of the job's ranks it stands for (fan_out "rank")."""
    roster: Roster | None = None
    """The ranks that are at work beside it (fan_out "rank")."""

    def device(self) -> CudaDevice | None:
        """The CUDA device that this unit is about; CUDA sees it alone, as device 0."""
        devices = self.facts.cuda_devices()
        return next((device for device in devices if device.subject == self.subject), None)


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
    """One unit for each CUDA device, or for each rank; one in all where there is none."""
    turns: Literal["together", "one_by_one"] = "together"
    """Whether units measure at the same time, or each alone while the others wait."""
    gpu: bool = False
    """It looks at GPUs: skipped where none is expected (gpu: none), and a hang blames the node."""
    data: bool = False
    """It reads the data path and nothing else: skipped where none is named (--data)."""
    isolate: bool = True
    """Run `observe` in a process of its own, which may be killed."""
    causes: Mapping[str, str] = field(default_factory=dict)
    """What a finding's `cause_id` may be: what is seen then, and the usual remedy."""
    examples: str = ""
    """Real outputs, for `preflight explain`."""
