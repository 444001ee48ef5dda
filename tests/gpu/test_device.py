"""The real device, straight: kernel, architectures, copies, link, and a plain loop beside them."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.gpu.conftest import Note

pytestmark = pytest.mark.timeout(300)


def test_the_kernel_sums_exactly(measured: dict[str, Any]) -> None:
    assert measured["kernel_error"] == 0.0


def test_torch_names_the_architectures_it_has_code_for(measured: dict[str, Any]) -> None:
    major = measured["capability"][0]
    assert any(arch.startswith(("sm_", "compute_")) for arch in measured["arch_list"])
    assert any(arch.startswith(f"sm_{major}") for arch in measured["arch_list"])


def test_every_byte_comes_back(measured: dict[str, Any]) -> None:
    assert measured["verified"] is True


@pytest.mark.parametrize("copy", ["pinned_h2d", "pinned_d2h", "pageable_h2d"])
def test_copies_are_steady_and_of_this_world(measured: dict[str, Any], copy: str) -> None:
    rate = measured[copy]
    assert rate["blocks"] >= 10
    assert 0.5 < rate["value"] < 1000
    assert rate["low"] <= rate["value"] <= rate["high"]
    # Pageable copies are the work of one CPU thread, which others may hold up.
    assert rate["high"] - rate["low"] < (0.5 if copy == "pageable_h2d" else 0.1) * rate["value"]


def test_the_link_is_seen_under_load(measured: dict[str, Any]) -> None:
    idle, busy = measured["link_idle"], measured["link_busy"]
    assert busy is not None and busy["gen"] and busy["width"]
    assert idle is None or busy["gen"] >= (idle["gen"] or 0)
    assert busy["gen"] <= busy["max_gen"] and busy["width"] <= busy["max_width"]


def test_as_fast_as_a_plain_loop(measured: dict[str, Any]) -> None:
    assert measured["ours_over_plain"] >= 0.98


def test_as_fast_as_nvbandwidth(measured: dict[str, Any], note: Note) -> None:
    tool = shutil.which("nvbandwidth")
    if tool is None:
        pytest.skip("nvbandwidth is not installed")
    command = [tool, "-j", "-t", "host_to_device_memcpy_ce"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (case,) = json.loads(done.stdout)["nvbandwidth"]["testcases"]
    theirs = float(case["bandwidth_matrix"][0][0])
    note("nvbandwidth_h2d_gb_per_s", theirs)
    assert measured["pinned_h2d"]["value"] >= 0.98 * theirs


def test_memory_that_cannot_be_had_is_a_device_error(measured: dict[str, Any]) -> None:
    assert measured["refusal"]["code"] == 2, measured["refusal"]
