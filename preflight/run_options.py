"""What one run is asked to do, and how it speaks to its caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from preflight.exit_code import ExitOn
from preflight.settings import Request


@dataclass(frozen=True)
class Options:
    """What one run was asked to do; names are those of the command line."""

    request: Request = field(default_factory=Request)
    check: Sequence[str] = ()
    skip: Sequence[str] = ()
    waive: Sequence[str] = ()
    data: str | None = None
    dataset: str | None = None
    report_dir: str | None = None
    report_dir_required: bool = True
    """False when it was named by the environment: then an unwritable one is only a note."""
    exit_on: ExitOn = "any"
    report_only: bool = False
    allow_undecided: bool = False
    stagger_s: float = 0.0
    explain: bool = False

    def record(self) -> dict[str, Any]:
        """As the report tells them."""
        return {
            "thresholds": self.request.thresholds, "workload": self.request.workload,
            "gpu": self.request.gpu, "set": [*self.request.set_options],
            "check": list(self.check), "skip": list(self.skip), "waive": list(self.waive),
            "data": self.data, "dataset": self.dataset,
            "deadline_s": self.request.deadline_s, "exit_on": self.exit_on,
            "report_only": self.report_only, "allow_undecided": self.allow_undecided,
            "stagger_s": self.stagger_s, "explain": self.explain,
        }  # fmt: skip


@dataclass
class Talk:
    """How the gate speaks while it runs."""

    note: Callable[[str], None] = lambda line: None
    progress: Callable[[str, str], None] = lambda check, text: None
