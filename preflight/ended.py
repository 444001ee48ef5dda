"""How a unit of work came to its end, as its parent sees it. Pure record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

EndKind = Literal["done", "unavailable", "raised", "died", "timeout", "stopped"]


@dataclass(frozen=True)
class Ended:
    """One end."""

    kind: EndKind
    seconds: float
    answer: Any = None
    """The last reading; with any kind but "done" it is a partial one."""
    text: str = ""
    """For "unavailable" and "raised": the child's own words."""
    exit_signal: int | None = None
    last_progress: str = ""
    ready: bool = True
    """False when it ended before it had imported what it needs."""
    went: bool = True
    """False when it ended before it had begun: its turn had not come."""
    by_total: bool = False
    """A timeout: the time that it had to share with others was over, not its own."""
    output: str = ""
    abandoned_pid: int | None = None
