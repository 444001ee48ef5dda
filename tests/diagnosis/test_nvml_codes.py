from __future__ import annotations

import pynvml
import pytest

from preflight.diagnosis.nvml_codes import FAULTS, NvmlFault, explain
from preflight.machine.nvml import error_name
from preflight.outcome import Blame, Outcome

ALL = (1, 2, 3, 4, 6, *range(8, 22), *range(25, 31), 999)
NODE = {8, 9, 10, 11, 14, 15, 16, 18}  # positive evidence: driver, GPU, power, interrupts
SETUP = {4, 12, 17, 20, 999}
FAILS = NODE | {4, 12, 17, 28, 999}


def test_every_code_has_one_row() -> None:
    assert [fault.code for fault in FAULTS] == list(ALL)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.code))
def test_a_row_is_complete(fault: NvmlFault) -> None:
    assert fault.code is not None
    assert explain(fault.code) is fault
    # nvidia-ml-py of an older branch has no name for the newest codes.
    assert error_name(fault.code) in (fault.name, f"code {fault.code}")
    for sentence in (fault.cause, fault.remedy):
        assert len(sentence) > 25 and not sentence.endswith(".") and "{" not in sentence
    assert (fault.blame is Blame.NODE) == (fault.code in NODE)
    assert (fault.blame is Blame.SETUP) == (fault.code in SETUP)
    assert (fault.outcome is Outcome.FAIL) == (fault.code in FAILS)
    assert (fault.outcome is Outcome.SKIP) == (fault.code in {3, 21})
    assert fault.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.SKIP)
    assert isinstance(fault.blame, Blame)


def test_what_the_operator_has_to_know() -> None:
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in explain(12).remedy
    assert "daemon-reload" in explain(999).cause and "re-create" in explain(999).remedy
    assert "Xid 79" in explain(15).remedy
    assert "reboot" in explain(18).remedy and "modprobe nvidia" in explain(9).remedy


@pytest.mark.parametrize("code", [None, 0, 31, 4711])
def test_a_code_that_nobody_has_heard_of(code: int | None) -> None:
    fault = explain(code)
    assert (fault.code, fault.outcome, fault.blame) == (code, Outcome.ERROR, Blame.UNKNOWN)
    assert (
        fault.name and fault.remedy and str(code if code is not None else "a code") in fault.cause
    )


def test_what_is_left_out_is_known() -> None:
    """Codes that only settings, vGPU set-up and resets give."""
    codes = {getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")}
    assert {5, 7, 22, 23, 24} >= {code for code in codes - set(ALL) if code <= 30}
