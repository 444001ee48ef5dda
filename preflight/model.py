"""Frozen records that travel from a check to the report: Rate, Finding, Result, Report.

They are the published JSON document (`design` calls it the record): a field added here is a field
of `preflight.json`. None means "asked, not answered"; what was not asked is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from preflight.outcome import Blame, Outcome

SCHEMA_VERSION = "1.0"

Finite = Annotated[float, Field(allow_inf_nan=False)]
Comparison = Literal["at_least", "at_most", "equals"]
Scalar = bool | int | Finite | str | None


class Record(BaseModel):
    """A frozen record without unknown fields."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", populate_by_name=True)


class Rate(Record):
    """A measured rate with its spread.

    Of samples: 1 / mean of the blocks' seconds per sample, and its interval. Of copies: the median
    of the pieces, and their 10th and 90th percentile.
    """

    value: Finite
    low: Finite | None = Field(description="lower end of the spread; None with too few blocks")
    high: Finite | None = Field(description="upper end of the spread; None with too few blocks")
    unit: str
    blocks: int = Field(description="blocks, or pieces of a copy, that were counted")
    discarded: int = Field(description="blocks left out because others used the CPUs meanwhile")
    samples: tuple[Finite, ...] = Field(description="rates of the counted blocks, in order")


class Stage(Record):
    """One stage of the feed, measured alone with everything that it may use."""

    name: Literal["fetch", "decode", "transport", "copy"]
    samples_per_s: Rate = Field(description="of one rank, while all ranks do the same")
    cpu_ms_per_sample: Finite | None = None
    note: str | None = Field(default=None, description="in a few words: 53.1 GB/s, page cache")


class Finding(Record):
    """One reading held against one limit."""

    id: str = Field(description="check.finding, the name that --waive takes")
    outcome: Outcome
    would_be: Outcome | None = Field(
        default=None, description="what it was before a waiver or required: false lowered it"
    )
    waived: bool = False
    subject: str | None = Field(default=None, description="which rank, GPU, mount or file")
    observed: Scalar = None
    comparison: Comparison | None = None
    limit: Scalar = None
    unit: str | None = None
    source: str | None = Field(default=None, description="where the limit comes from")
    cause: str | None = Field(default=None, description="the likely cause, one sentence")
    cause_id: str | None = Field(
        default=None, description="the row of the table of causes, where the cause is one of them"
    )
    remedy: str | None = Field(default=None, description="the next thing to do")
    blame: Blame | None = None


class Result(Record):
    """What one check came to."""

    check: str
    outcome: Outcome
    required: bool
    reason: str | None = Field(default=None, description="one sentence when it is not a pass")
    blocked_by: str | None = Field(
        default=None, description="the needed check whose miss kept this one from running"
    )
    duration_s: Finite
    partial: bool = Field(default=False, description="the reading was cut off before its end")
    reading: Any = Field(default=None, description="what was seen; one object, or one per unit")
    findings: tuple[Finding, ...]
    output: str | None = Field(
        default=None, description="last lines the measuring process printed, when it did not pass"
    )


class Node(Record):
    """How the report names the machine."""

    name: str
    name_from: str = Field(description="the variable or file that the name was taken from")
    hostname: str


class Setting(Record):
    """One effective value and where it came from."""

    value: Any
    from_: str = Field(alias="from", description="file:line, variable or option")
    source: str | None = Field(default=None, description="the value's own source, if it names one")


class SettingsRecord(Record):
    """What the run was asked to do."""

    layers: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    values: dict[str, Setting] = {}


class Report(Record):
    """A whole run: the document every format is drawn from."""

    schema_version: str = SCHEMA_VERSION
    preflight_version: str
    complete: bool = Field(
        description="false while the run goes on, and for ever if it was cut off"
    )
    outcome: Outcome
    exit_code: int
    reason: str | None
    started_at: str = Field(description="ISO 8601, UTC")
    duration_s: Finite
    node: Node
    facts: dict[str, Any]
    settings: SettingsRecord
    results: tuple[Result, ...]


def judged(results: Sequence[Result]) -> bool:
    """Whether anything counted: a run of nothing but skips, waivers and errors decides nothing."""
    return any(
        finding.outcome in (Outcome.PASS, Outcome.WARN)
        and not finding.waived
        and finding.would_be is not Outcome.ERROR
        for result in results
        for finding in result.findings
    )
