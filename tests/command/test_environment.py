"""Every option of `run` by its variable: a flag beats it, and it beats the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command.images import write_images
from tests.command.running import FAIL_LIMITS, Gate, Ran, assert_one_verdict

pytestmark = pytest.mark.timeout(60)

NO_FLOOR = "limits.min_memory_headroom_gib=0"
QUICK = ("run", "--thresholds=quick", "--check=limits", f"--set={NO_FLOOR}")


def record(ran: Ran, key: str) -> object:
    """One effective value and where it came from."""
    entry = ran.report["settings"]["values"][key]
    return entry["value"], entry["from"]


def option(ran: Ran, name: str) -> object:
    """An option as the report records it."""
    return ran.report["settings"]["options"][name]


def test_what_a_run_is_by_variables_alone(gate: Gate) -> None:
    write_images(gate.folder / "data", 1)
    ran = gate.run("run", reports=False, env={
        "PREFLIGHT_THRESHOLDS": "quick",
        "PREFLIGHT_WORKLOAD": "vit_s16",
        "PREFLIGHT_GPU": "h100-sxm",
        "PREFLIGHT_SET": f"{NO_FLOOR},shm.min_free_gib=1e6",
        "PREFLIGHT_DATA": "data",
        "PREFLIGHT_CHECK": "limits, shm",
        "PREFLIGHT_WAIVE": "shm.floor,limits.nofile",
        "PREFLIGHT_REPORT_DIR": str(gate.reports),
        "PREFLIGHT_FORMAT": "markdown",
        "PREFLIGHT_DEADLINE": "2m",
        "PREFLIGHT_EXPLAIN": "1",
        "PREFLIGHT_EXIT_ON": "node",
        "PREFLIGHT_REPORT_ONLY": "true",
        "PREFLIGHT_ALLOW_UNDECIDED": "yes",
        "PREFLIGHT_STAGGER": "0.001s",
        "PREFLIGHT_QUIET": "1",
        "PREFLIGHT_NO_COLOR": "1",
        "PREFLIGHT_CPU_REQUEST": "1",
    })  # fmt: skip
    assert_one_verdict(ran, 0)
    options = ran.report["settings"]["options"]
    assert options | {"set": []} == {
        "thresholds": "quick", "workload": "vit_s16", "gpu": "h100-sxm", "set": [],
        "check": ["limits", "shm"], "skip": [], "waive": ["shm.floor", "limits.nofile"],
        "data": "data", "deadline_s": 120.0, "exit_on": "node", "report_only": True,
        "allow_undecided": True, "stagger_s": 0.001, "explain": True, "dataset": None,
    }  # fmt: skip
    assert record(ran, "run.deadline_s") == (120.0, "PREFLIGHT_DEADLINE")
    assert record(ran, "shm.min_free_gib") == (1e6, "PREFLIGHT_SET")
    assert ran.finding("shm.floor")["waived"]
    assert ran.report["facts"]["cpu"]["request"] == 1.0
    assert ran.stdout.startswith("#") and "|" in ran.stdout  # markdown
    assert ran.stderr == ""  # quiet
    assert ran.report["settings"]["warnings"] == []


FLAGS = [
    ("PREFLIGHT_THRESHOLDS", "default", "--thresholds=quick", "thresholds", "quick"),
    ("PREFLIGHT_WORKLOAD", "vit_s16", "--workload=resnet50", "workload", "resnet50"),
    ("PREFLIGHT_GPU", "h100-sxm", "--gpu=none", "gpu", "none"),
    ("PREFLIGHT_CHECK", "shm", "--check=limits", "check", ["limits"]),
    ("PREFLIGHT_SKIP", "limits", "--skip=shm", "skip", ["shm"]),
    ("PREFLIGHT_WAIVE", "nonsense", "--waive=limits,shm.need", "waive", ["limits", "shm.need"]),
    ("PREFLIGHT_DEADLINE", "soon", "--deadline=90", "deadline_s", 90.0),
    ("PREFLIGHT_EXIT_ON", "nobody", "--exit-on=node", "exit_on", "node"),
    ("PREFLIGHT_STAGGER", "20h", "--stagger=0.001s", "stagger_s", 0.001),
    ("PREFLIGHT_DATA", "nowhere", "--data=data", "data", "data"),
]


@pytest.mark.parametrize(("variable", "value", "flag", "name", "seen"), FLAGS)
def test_a_flag_beats_its_variable(
    gate: Gate, variable: str, value: str, flag: str, name: str, seen: object
) -> None:
    write_images(gate.folder / "data", 1)
    limits = f"{NO_FLOOR},limits.max_workers_per_cpu=99"
    usual = {"PREFLIGHT_THRESHOLDS": "quick", "PREFLIGHT_CHECK": "limits", "PREFLIGHT_SET": limits}
    ran = gate.run("run", flag, env={**usual, variable: value})
    assert_one_verdict(ran, 0)
    assert option(ran, name) == seen


def test_the_report_folders_flag_beats_its_variable(gate: Gate) -> None:
    other = gate.folder / "other"
    assert_one_verdict(gate.run(*QUICK, env={"PREFLIGHT_REPORT_DIR": str(other)}), 0)
    assert not other.exists()


def test_set_lies_over_its_variable_and_both_over_the_file(gate: Gate) -> None:
    site = gate.folder / "site.yaml"
    site.write_text("extends: quick\nlimits: {timeout_s: 6, min_memory_headroom_gib: 1000000}\n")
    ran = gate.run(
        "run", "--thresholds=site.yaml", "--check=limits", f"--set={NO_FLOOR}",
        env={
            "PREFLIGHT_SET":
            "limits.min_memory_headroom_gib=2000000,limits.max_workers_per_cpu=99"
        },
    )  # fmt: skip
    assert_one_verdict(ran, 0)
    assert record(ran, "limits.min_memory_headroom_gib") == (0, "--set")
    assert record(ran, "limits.max_workers_per_cpu") == (99, "PREFLIGHT_SET")
    assert record(ran, "limits.timeout_s") == (6, "site.yaml:2")
    assert ran.report["settings"]["layers"][-1] == "site.yaml"


def test_a_list_in_set_keeps_its_commas(gate: Gate) -> None:
    ran = gate.run(*QUICK, env={"PREFLIGHT_SET": "sample.shape=[3, 32,32],limits.timeout_s=6"})
    assert_one_verdict(ran, 0)
    assert record(ran, "sample.shape") == ([3, 32, 32], "PREFLIGHT_SET")
    assert record(ran, "limits.timeout_s") == (6, "PREFLIGHT_SET")


def test_a_wrong_value_in_a_variable_is_named_by_the_variable(gate: Gate) -> None:
    for variable, value in (
        ("PREFLIGHT_SET", "limits.timeout_s=soon"), ("PREFLIGHT_THRESHOLDS", "nowhere"),
        ("PREFLIGHT_WORKLOAD", "nothing"), ("PREFLIGHT_GPU", "nothing"),
    ):  # fmt: skip
        ran = gate.run("run", env={variable: value})
        assert_one_verdict(ran, 2)
        assert variable in ran.stderr, ran.stderr


@pytest.mark.parametrize(("variable", "value"), [
    ("PREFLIGHT_REPORT_ONLY", "perhaps"), ("PREFLIGHT_EXIT_ON", "nobody"),
    ("PREFLIGHT_FORMAT", "xml"), ("PREFLIGHT_DEADLINE", "soon"), ("PREFLIGHT_CHECK", "smh"),
    ("PREFLIGHT_SKIP", "smh"), ("PREFLIGHT_WAIVE", "smh"), ("PREFLIGHT_DATA", "nowhere"),
])  # fmt: skip
def test_a_wrong_value_in_a_variable_is_wrong_usage(gate: Gate, variable: str, value: str) -> None:
    ran = gate.run("run", "--thresholds=quick", env={variable: value})
    assert_one_verdict(ran, 2)
    assert value in ran.stderr or variable in ran.stderr


def test_empty_variables_are_not_set(gate: Gate) -> None:
    names = [
        "THRESHOLDS", "WORKLOAD", "GPU", "SET", "DATA", "CHECK", "SKIP", "WAIVE", "REPORT_DIR",
        "FORMAT", "DEADLINE", "EXPLAIN", "EXIT_ON", "REPORT_ONLY", "ALLOW_UNDECIDED", "STAGGER",
        "QUIET", "NO_COLOR", "CPU_REQUEST",
    ]  # fmt: skip
    ran = gate.run(*QUICK, env={f"PREFLIGHT_{name}": "" for name in names})
    assert_one_verdict(ran, 0)
    assert option(ran, "data") is None and option(ran, "waive") == []
    assert ran.report["settings"]["warnings"] == []


def test_unknown_variables_are_one_warning_and_no_error(gate: Gate) -> None:
    unknown = {
        "PREFLIGHT_SERVICE_HOST": "10.0.0.1", "PREFLIGHT_SERVICE_PORT": "80",
        "PREFLIGHT_TRESHOLDS": "cpu",
    }  # fmt: skip
    ran = gate.run(*QUICK, env=unknown)
    assert_one_verdict(ran, 0)
    (line,) = [line for line in ran.stderr.splitlines() if "no such variable" in line]
    assert all(name in line for name in unknown)
    assert "PREFLIGHT_TRESHOLDS (did you mean PREFLIGHT_THRESHOLDS?)" in line
    (warning,) = ran.report["settings"]["warnings"]
    assert warning in line
    assert_one_verdict(gate.run(*QUICK, FAIL_LIMITS, env=unknown), 1)


@pytest.mark.parametrize("value", ["two", "2500000"])
def test_a_cpu_request_that_makes_no_sense_is_one_warning_and_no_error(
    gate: Gate, value: str
) -> None:
    ran = gate.run(*QUICK, env={"PREFLIGHT_CPU_REQUEST": value})
    assert_one_verdict(ran, 0)
    (warning,) = ran.report["settings"]["warnings"]
    assert value in warning and "PREFLIGHT_CPU_REQUEST" in warning
    assert [warning in line for line in ran.stderr.splitlines()].count(True) == 1
    assert ran.report["facts"]["cpu"]["request"] is None
    assert ran.report["facts"]["cpu"]["request_ignored"] == warning


def test_lists_split_at_commas_in_flags_too(gate: Gate) -> None:
    ran = gate.run(
        "run", "--thresholds=cpu", "--skip=dataloader, shm,storage, feed", f"--set={NO_FLOOR}"
    )
    assert_one_verdict(ran, 0)
    assert [result["check"] for result in ran.report["results"]] == ["limits"]


def test_secrets_do_not_reach_a_report(gate: Gate) -> None:
    ran = gate.run(*QUICK, env={"AWS_SECRET_ACCESS_KEY": "hunter2", "PREFLIGHT_TOKEN": "hunter2"})
    assert_one_verdict(ran, 0)
    for path in Path(ran.reports).iterdir():
        assert "hunter2" not in path.read_text()
    assert "hunter2" not in ran.stdout + ran.stderr
