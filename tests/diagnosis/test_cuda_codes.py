"""CUDA's error codes in words, and what the circumstances make of them."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.diagnosis.cuda_circumstances import Around
from preflight.diagnosis.cuda_codes import CODES, FAULTS, code_in, explain
from preflight.outcome import Blame, Outcome

NODE, IMAGE, SETUP, SHARED, UNKNOWN = (
    Blame.NODE, Blame.IMAGE, Blame.SETUP, Blame.SHARED, Blame.UNKNOWN,
)  # fmt: skip

# Code, what cudaGetErrorString of CUDA 13.0 says, and who is blamed when nothing else is known.
RUNTIME_WORDS = [
    (2, "out of memory", UNKNOWN),
    (3, "initialization error", NODE),
    (34, "CUDA driver is a stub library", IMAGE),
    (35, "CUDA driver version is insufficient for CUDA runtime version", UNKNOWN),
    (36, "API call is not supported in the installed CUDA driver", IMAGE),
    (46, "CUDA-capable device(s) is/are busy or unavailable", SHARED),
    (100, "no CUDA-capable device is detected", SETUP),
    (101, "invalid device ordinal", SETUP),
    (102, "device doesn't have valid Grid license", NODE),
    (103, "integrity checks failed", NODE),
    (127, "startup failure in cuda runtime", NODE),
    (209, "no kernel image is available for execution on the device", IMAGE),
    (214, "uncorrectable ECC error encountered", NODE),
    (220, "uncorrectable NVLink error detected during the execution", NODE),
    (221, "PTX JIT compiler library not found", SETUP),
    (222, "the provided PTX was compiled with an unsupported toolchain.", IMAGE),
    (223, "PTX JIT compilation was disabled", SETUP),
    (226, "Invalid access of peer GPU memory over nvlink or a hardware error", NODE),
    (304, "OS call failed or operation not supported on this OS", SETUP),
    (700, "an illegal memory access was encountered", NODE),
    (719, "unspecified launch failure", NODE),
    (800, "operation not permitted", SETUP),
    (802, "system not yet initialized", NODE),
    (803, "system has unsupported display driver / cuda driver combination", SETUP),
    (804, "forward compatibility was attempted on non supported HW", IMAGE),
    (805, "MPS client failed to connect to the MPS control daemon or the MPS server", SETUP),
    (807, "MPS server is not ready to accept new MPS client requests", NODE),
    (999, "unknown error", SETUP),
]


@pytest.mark.parametrize(("code", "words", "blame"), RUNTIME_WORDS)
def test_a_code_and_its_words_come_to_the_same(code: int, words: str, blame: Blame) -> None:
    by_code, by_words = explain(code), explain(None, f"CUDA error: {words}\nCUDA kernel errors ...")
    assert by_code == by_words
    assert (by_code.outcome, by_code.blame) == (Outcome.FAIL, blame)
    assert by_code.title == f"{code} {by_code.name}"


def test_every_row_is_whole_and_tested() -> None:
    assert [code for code, _, _ in RUNTIME_WORDS] == list(CODES)
    assert len(CODES) == len(FAULTS)
    for fault in FAULTS:
        assert fault.cause and fault.remedy and fault.words, fault.code
        assert fault.name.startswith(("CUDA_ERROR_", "cudaError")), fault.code
        assert all(words == words.lower() for words in fault.words), "compared in lower case"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        # What torch 2.6 to 2.14 says around CUDA's own words.
        ("Unexpected error from cudaGetDeviceCount(). Error 803: system has ...", 803),
        ("Found no NVIDIA driver on your system. Please check that you have", 35),
        ("The NVIDIA driver on your system is too old (found version 11040).", 35),
        ("No CUDA GPUs are available", 100),
        ("CUDA unknown error - this may be due to an incorrectly set up environment", 999),
        ("CUDA driver error: 802", 802),
        ("Error 7 of 9 files", None),
        ("something else", None),
        ("", None),
    ],
)
def test_texts_of_torch(text: str, code: int | None) -> None:
    assert code_in(text) == code


def test_an_unknown_code_is_told_as_it_came() -> None:
    fault = explain(205, "mapping of buffer object failed\nand more", name="CUDA_ERROR_MAP_FAILED")
    assert "code 205: CUDA_ERROR_MAP_FAILED: mapping of buffer object failed" in fault.cause
    assert "and more" not in fault.cause
    assert "CUDA_MPS_*" in fault.remedy
    assert (fault.outcome, fault.blame) == (Outcome.FAIL, UNKNOWN)
    assert fault.title == "205 CUDA_ERROR_MAP_FAILED"
    with_mps = explain(205, around=Around(mps="/tmp/mps"))
    assert "CUDA_MPS_PIPE_DIRECTORY is set" in with_mps.remedy
    assert explain(None, "").cause.endswith("no text")
    assert explain(None, "").title == ""


MISMATCH = {"library_version": "575.57.08", "driver_version": "580.95.05", "library_path": "/l/x"}
GPU_NODES = ("/dev/nvidia0", "/dev/nvidiactl")


@pytest.mark.parametrize(
    ("code", "around", "blame", "words"),
    [
        (35, {"library_loaded": False}, SETUP, "libcuda.so.1 is not there"),
        (
            35,
            {"library_loaded": True, "driver_version": "570.1", "required_driver": "580.65.06"},
            NODE,
            "(570.1) is older than the CUDA that torch was built with needs (580.65.06)",
        ),
        (46, {"compute_mode": "prohibited"}, NODE, "prohibited"),
        (46, {"compute_mode": "exclusive_process", "processes": (41, 42)}, SHARED, "41, 42"),
        (46, {"compute_mode": "exclusive_process"}, SHARED, "busy"),
        (46, {"compute_mode": "default", "mps": "/tmp/mps"}, SHARED, "/tmp/mps"),
        (100, {"broken_gpus": ("GPU 3 GPU is lost",), "visible_devices": "0"}, NODE, "is lost"),
        (100, {"closed_by_mig": ("GPU 0",)}, SETUP, "MIG is on for GPU 0, and no slice"),
        (100, {"visible_devices": "NoDevFiles"}, SETUP, "asked Slurm for no GPU"),
        (100, {"worked_before": True}, UNKNOWN, "worked a moment ago"),
        (999, {"worked_before": True}, UNKNOWN, "worked a moment ago"),
        (719, {"worked_before": True}, NODE, "broke off"),
        (100, {"visible_devices": ""}, SETUP, 'CUDA_VISIBLE_DEVICES="" names no GPU'),
        (100, {"visible_devices": "9"}, SETUP, "CUDA_VISIBLE_DEVICES=9 names no GPU"),
        (100, {"listed": True, "visible_devices": "0"}, SETUP, "cannot open it"),
        (100, {"device_nodes": ("/dev/nvidiactl",)}, SETUP, "no /dev/nvidia0"),
        (100, {"device_nodes": GPU_NODES}, SETUP, "none was given"),
        (100, {"device_nodes": ("/dev/dxg",)}, SETUP, "none was given"),
        (802, {"fabric": "in progress"}, NODE, "NVML says in progress"),
        (802, {"fabric": "completed"}, NODE, "fabric manager"),
        (803, {**MISMATCH, "compat": True}, IMAGE, "compat library is in use"),
        (803, MISMATCH, NODE, "libcuda is 575.57.08, but the kernel's half"),
        (803, {**MISMATCH, "nvml_works": True, "container": "docker"}, IMAGE, "stands in front"),
        (803, {**MISMATCH, "nvml_works": True}, SETUP, "stands in front"),
        (803, {"library_version": "580.95.05", "driver_version": "580.95.05"}, SETUP, "different"),
        (804, {"compat": True, "library_path": "/c/compat/x"}, IMAGE, "/c/compat/x"),
        (804, {"compat": False}, IMAGE, "compat library is in use"),
        (999, {"device_nodes": GPU_NODES}, SETUP, "/dev/nvidia-uvm is missing"),
        (999, {"device_nodes": (*GPU_NODES, "/dev/nvidia-uvm")}, SETUP, "cgroup denies"),
        (999, {"device_nodes": ("/dev/dxg",)}, SETUP, "cgroup denies"),
        (209, {"compat": True}, IMAGE, "architecture"),
    ],
)
def test_circumstances(code: int, around: dict[str, Any], blame: Blame, words: str) -> None:
    fault = explain(code, around=Around(**around))
    assert fault.blame is blame
    assert words in fault.cause
    assert (fault.code, fault.name) == (code, CODES[code].name)
