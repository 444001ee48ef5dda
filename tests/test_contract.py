"""What every check owes; the failing line names what a new check is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from preflight import checks
from preflight.checks.contract import Limits, Reading
from tests import making, recording

CHECKS = checks.discover()
TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Finding ids, with their outcomes, that the checks' own tests make their judges give."""
    out = tmp_path_factory.mktemp("recorded") / "ids.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.recording", str(TESTS / "checks")],
        cwd=TESTS.parent, env={**os.environ, recording.VARIABLE: str(out)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found: dict[str, list[str]] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("id", CHECKS)
def test_a_check_is_complete(id: str) -> None:
    check = CHECKS[id]
    assert check.id == id
    assert check.title and len(check.about) > 80
    assert issubclass(check.limits, Limits) and issubclass(check.reading, Reading)
    assert all(remedy.strip() for remedy in check.findings.values()), "a finding without a remedy"
    assert all(need in CHECKS for need in (*check.needs, *check.uses))
    assert (TESTS / "checks" / f"test_{id}.py").is_file(), f"tests/checks/test_{id}.py is missing"


@pytest.mark.parametrize("id", CHECKS)
def test_a_check_has_a_section_in_default_yaml(id: str) -> None:
    assert id in making.settings("default").limits, f"thresholds/default.yaml has no section {id}"


@pytest.mark.parametrize("id", CHECKS)
def test_no_number_that_decides_lives_in_code(id: str) -> None:
    for name, field in CHECKS[id].limits.model_fields.items():
        assert field.is_required() or field.default is None, f"{id}.{name} has a default in code"
        assert field.description or name.startswith(("max_", "min_")), f"{id}.{name} is undescribed"


@pytest.mark.parametrize("id", CHECKS)
def test_every_finding_is_produced_by_some_test(id: str, produced: dict[str, list[str]]) -> None:
    declared = {f"{id}.{name}" for name in CHECKS[id].findings}
    given = {finding for finding in produced if finding.startswith(f"{id}.")}
    assert declared - given == set(), "declared, but no test produces it"
    assert given - declared == set(), "produced, but not declared"


@pytest.mark.parametrize("id", CHECKS)
def test_every_finding_is_missed_in_some_test(id: str, produced: dict[str, list[str]]) -> None:
    for name in CHECKS[id].findings:
        assert set(produced[f"{id}.{name}"]) - {"pass"}, f"{id}.{name} is never missed in a test"


def test_a_module_without_its_check_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("CHECK = None")
    monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(tmp_path)])
    with pytest.raises(ImportError, match="must define CHECK"):
        checks.discover()
