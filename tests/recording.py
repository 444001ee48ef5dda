"""A pytest plugin that writes down which findings the judges gave: see test_contract.py."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

VARIABLE = "PREFLIGHT_TEST_RECORD"
_given: dict[str, set[str]] = defaultdict(set)


def pytest_configure(config: Any) -> None:
    from preflight import checks

    for check in checks.discover().values():
        judge = check.judge

        def recorded(readings: Any, limits: Any, judge: Any = judge) -> Any:
            findings = judge(readings, limits)
            assert findings == judge(readings, limits), "a judge must be pure"
            for finding in findings:
                _given[finding.id].add(finding.outcome.value)
                if finding.outcome.value not in ("pass", "skip"):
                    assert finding.cause and finding.remedy and finding.blame, finding
            return findings

        object.__setattr__(check, "judge", recorded)  # frozen, and only for this process


def pytest_unconfigure(config: Any) -> None:
    if VARIABLE in os.environ:
        ids = {id: sorted(outcomes) for id, outcomes in _given.items()}
        Path(os.environ[VARIABLE]).write_text(json.dumps(ids))
