"""The whole command on a real device, with the thresholds as shipped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.gpu.conftest import REPORTS, REPOSITORY, Note

pytestmark = pytest.mark.timeout(300)

GPU_CHECKS = ("driver_cuda", "gpus", "pinned_copy")


@pytest.fixture(scope="module", params=["default", "quick"])
def report(request: pytest.FixtureRequest, note: Note) -> dict[str, Any]:
    folder = REPORTS / f"gpu-{request.param}"
    command = [sys.executable, "-m", "preflight", "run", "--thresholds", request.param]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--report-dir", str(folder)], cwd=REPOSITORY, capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    print(done.stdout, done.stderr, sep="\n")
    note(f"{request.param}_run_s", time.monotonic() - began)
    note(f"{request.param}_exit_code", done.returncode)
    written: dict[str, Any] = json.loads((folder / "preflight.json").read_text())
    assert written["exit_code"] == done.returncode
    for result in written["results"]:
        note(f"{request.param}_{result['check']}", f"{result['outcome']}, {result['duration_s']} s")
    return written


def result(report: dict[str, Any], check: str) -> dict[str, Any]:
    (found,) = [result for result in report["results"] if result["check"] == check]
    return dict(found)


def test_it_ends_with_a_verdict_that_is_explained(report: dict[str, Any]) -> None:
    assert report["complete"] is True
    assert report["exit_code"] in (0, 1, 3)
    for found in report["results"]:
        for finding in found["findings"]:
            if finding["outcome"] in ("fail", "error", "warn"):
                assert finding["cause"] and finding["remedy"] and finding["blame"], finding
            if finding["outcome"] == "skip":
                assert finding["cause"], finding


@pytest.mark.parametrize("check", GPU_CHECKS)
def test_the_gpu_checks_have_run_to_their_end(report: dict[str, Any], check: str) -> None:
    found = result(report, check)
    ids = {finding["id"] for finding in found["findings"]}
    assert f"{check}.completed" not in ids and f"{check}.applies" not in ids, found
    assert found["reading"] is not None


def test_nvml_facts_are_complete(report: dict[str, Any]) -> None:
    assert report["facts"]["nvml"]["state"] == "ok"
    assert report["facts"]["nvml"]["driver_version"]
    assert report["facts"]["gpus"]
    for gpu in report["facts"]["gpus"]:
        for field in ("uuid", "name", "pci_bus_id", "compute_capability", "memory_total_gib",
                      "compute_mode"):  # fmt: skip
            assert gpu[field] is not None, (field, gpu["unanswered"])
        if not gpu["c2c"] and not gpu["integrated"]:
            assert None not in gpu["link"].values(), gpu["unanswered"]


def test_copies_were_measured_on_the_link_they_ran_over(report: dict[str, Any]) -> None:
    reading = result(report, "pinned_copy")["reading"]
    for seen in reading if isinstance(reading, list) else [reading]:
        assert seen["verified"] is True
        assert seen["h2d_gb_per_s"]["blocks"] >= 10 and seen["d2h_gb_per_s"]["blocks"] >= 10
        assert seen["link_seen"] == "during the copy"


def test_what_the_command_measures_is_what_the_device_gives(
    report: dict[str, Any], measured: dict[str, Any], note: Note
) -> None:
    reading = result(report, "pinned_copy")["reading"]
    first = reading[0] if isinstance(reading, list) else reading
    ratio = first["h2d_gb_per_s"]["value"] / measured["pinned_h2d"]["value"]
    note("command_over_device", ratio)
    assert 0.9 < ratio < 1.1
