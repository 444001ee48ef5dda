"""Wrong options and threshold files: exit 2, one or two clear lines, and nothing was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command.running import Gate, Ran, assert_one_verdict

pytestmark = pytest.mark.timeout(60)

DEEP = "".join(f"{'  ' * depth}a:\n" for depth in range(12)) + "  " * 12 + "b: 1\n"

# What the file holds -> where it is wrong, and words that say what is.
FILES = {
    "not YAML": ("limits: {timeout_s: 5\nshm: [\n", 2, "not YAML"),
    "empty": ("", 1, "empty"),
    "a list": ("- 1\n", 1, "not a mapping"),
    "a tab": ("limits:\n\ttimeout_s: 5\n", 2, "a tab: write spaces"),
    "a duplicate key": ("limits:\n  timeout_s: 5\n  timeout_s: 6\n", 3, "duplicate key timeout_s"),
    "an unknown key": ("shm:\n  min_fre_gib: 1\n", 2, "Did you mean min_free_gib?"),
    "an unknown section": ("shmm: {required: true}\n", 1, "Did you mean shm?"),
    "a wrong type": ("shm:\n  min_free_gib: lots\n", 2, "shm.min_free_gib"),
    "a text for a number": ("shm:\n  min_free_gib: '1'\n", 2, "without quotes"),
    "a negative limit": ("shm:\n  min_free_gib: -1\n", 2, "shm.min_free_gib"),
    "NaN": ("shm:\n  min_free_gib: .nan\n", 2, "not a finite number"),
    "a unit in the value": (
        "shm:\n  min_free_gib: 1 GiB\n",
        2,
        "the unit stands in the key's name",
    ),
    "a seconds unit": ("limits:\n  timeout_s: 5s\n", 2, "the unit stands in the key's name"),
    "base 60": ("limits:\n  timeout_s: 1:30\n", 2, "base 60"),
    "an alias": ("limits: &a {timeout_s: 5}\nshm: *a\n", 1, "anchor"),
    "a cycle": ("extends: ./site.yaml\n", 1, "circle"),
    "extends nothing": ("extends: nowhere\n", 1, "no threshold file nowhere"),
    "too large": ("# " + "x" * 70_000 + "\n", 1, "64 KiB"),
    "too deep": (DEEP, 11, "deep"),
    "an unknown check": ("run: {checks: [limits, smh]}\n", 1, "Did you mean shm?"),
    "a removed section": ("shm: null\n", None, "no section shm"),
    "no ranks": ("loader: {ranks: 0}\n", None, "loader.ranks: must be more than 0"),
    "data expected": ("expect: {data: true}\n", None, "name it with --data"),
    "not UTF-8": ("description: \udcff\n", 1, "UTF-8"),
}

# Options -> words that say what is wrong.
OPTIONS = [
    (("--thresholds=nowhere.yaml",), "no threshold file nowhere.yaml"),
    (("--thresholds=defalt",), "Did you mean default?"),
    (("--thresholds=.",), "threshold"),
    (("--check=smh",), "Did you mean shm?"),
    (("--skip=dataloder",), "Did you mean dataloader?"),
    (("--waive=shm.nead",), "Did you mean shm.need?"),
    (("--workload=resnet5",), "Did you mean resnet50?"),
    (("--gpu=h100",), "Did you mean h100-sxm?"),
    (("--thresolds=cpu",), "--thresholds"),
    (("--deadline=soon",), "120s or 2m"),
    (("--deadline=0",), "120s or 2m"),
    (("--deadline=-5s",), "120s or 2m"),
    (("--stagger=long",), "120s or 2m"),
    (("--exit-on=maybe",), "any, node"),
    (("--format=xml",), "table, json, junit, markdown"),
    (("--set=shm.min_free_gib",), "SECTION.KEY=VALUE"),
    (("--set=shm.min_fre_gib=1",), "Did you mean min_free_gib?"),
    (("--set=shm.min_free_gib=lots",), "shm.min_free_gib"),
    (("--data=nowhere",), "there is no such path"),
    (("--data=",), "--data"),
    (("--dataset=",), "--dataset"),
    (("--dataset=train.py",), "write MODULE:FACTORY"),
    (("--check=shm", "--skip=shm"), "nothing is left to run"),
    (("--skip=limits,shm,storage,dataloader,feed",), "nothing is left to run"),
    (("--set=expect.data=true",), "name it with --data"),
    (("a-stray-word",), "a-stray-word"),
    (("--report-dir",), "--report-dir"),
]  # fmt: skip


def assert_refused(gate: Gate, ran: Ran, words: str) -> None:
    """Two lines at most on standard error that name it, and no process but the command itself."""
    lines = ran.stderr.splitlines()
    assert ran.code == 2, ran.stdout + ran.stderr
    assert 1 <= len(lines) <= 2 and all(line.startswith("preflight: ") for line in lines)
    assert words in ran.stderr and "Traceback" not in ran.stderr
    assert ran.stdout == ""
    started = (gate.folder / "mark.log").read_text().splitlines()
    assert not [line for line in started[1:] if "--data" not in started[0]], started


@pytest.mark.parametrize("what", FILES)
def test_a_wrong_threshold_file(gate: Gate, what: str) -> None:
    text, line, words = FILES[what]
    (gate.folder / "site.yaml").write_bytes(text.encode(errors="surrogateescape"))
    ran = gate.run("run", "--thresholds=site.yaml", standin="log")
    assert_refused(gate, ran, words)
    if line is not None:
        assert ran.stderr.startswith(f"preflight: site.yaml:{line}: ")
    assert_one_verdict(ran, 2)
    assert ran.report["results"] == []
    assert ran.report["reason"] in ran.stderr.replace("preflight: ", "")


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=[" ".join(o) for o, _ in OPTIONS])
def test_a_wrong_option(gate: Gate, options: tuple[str, ...], words: str) -> None:
    reports = options != ("--report-dir",)  # which is only wrong as the last word
    ran = gate.run("run", "--thresholds=cpu", *options, standin="log", reports=reports)
    assert_refused(gate, ran, words)
    if reports:
        assert_one_verdict(ran, 2)
        assert ran.report["results"] == []


@pytest.mark.parametrize("told_by", ["flag", "environment"])
def test_a_misspelt_command_leaves_no_older_pass_behind(gate: Gate, told_by: str) -> None:
    assert gate.run("run", "--thresholds=cpu", "--check=limits").report["exit_code"] in (0, 1)
    flag = told_by == "flag"
    env = {} if flag else {"PREFLIGHT_REPORT_DIR": str(gate.reports)}
    ran = gate.run("rnu", "--thresholds=cpu", standin="log", reports=flag, env=env)
    assert_refused(gate, ran, "rnu")
    assert_one_verdict(ran, 2)
    assert "rnu" in ran.report["reason"]


def test_a_threshold_file_that_cannot_be_read_is_named(gate: Gate) -> None:
    (gate.folder / "site.yaml").mkdir()
    assert_refused(gate, gate.run("run", "--thresholds=site.yaml", standin="log"), "site.yaml")


def blocked(gate: Gate) -> Path:
    """A folder that nobody can make, root included."""
    (gate.folder / "file").write_text("")
    return gate.folder / "file" / "reports"


def test_a_report_folder_named_by_flag_must_be_writable(gate: Gate) -> None:
    ran = gate.run("run", "--thresholds=quick", f"--report-dir={blocked(gate)}", reports=False,
                   standin="log")  # fmt: skip
    assert_refused(gate, ran, "Not a directory")
    assert str(blocked(gate)) in ran.stderr


@pytest.mark.parametrize(
    ("option", "code"), [("--set=shm.min_free_gib=0", 0), ("--set=shm.min_free_gib=1e6", 1)]
)
def test_a_report_folder_named_by_the_environment_is_only_a_note(
    gate: Gate, option: str, code: int
) -> None:
    ran = gate.run(
        "run", "--thresholds=quick", "--set=limits.min_memory_headroom_gib=0", option,
        reports=False, env={"PREFLIGHT_REPORT_DIR": str(blocked(gate))},
    )  # fmt: skip
    assert ran.code == code
    lines = [line for line in ran.stderr.splitlines() if "reports are lost" in line]
    assert len(lines) == 1 and "Not a directory" in lines[0]
    assert (
        ran.stdout.startswith("PASS" if code == 0 else "FAIL") and "reports are lost" in ran.stdout
    )


def test_wrong_usage_is_reported_where_the_environment_says(gate: Gate) -> None:
    ran = gate.run("--nonsense", reports=False, env={"PREFLIGHT_REPORT_DIR": str(gate.reports)})
    assert_one_verdict(ran, 2)


@pytest.mark.parametrize("command", ["validate", "show", "explain"])
def test_other_commands_refuse_wrong_input_too(gate: Gate, command: str) -> None:
    (gate.folder / "site.yaml").write_text("shm: {min_fre_gib: 1}\n")
    arguments = {
        "validate": ("thresholds", "validate", "site.yaml"),
        "show": ("thresholds", "show", "site.yaml", "--effective"),
        "explain": ("explain", "smh"),
    }
    ran = gate.run(*arguments[command], reports=False, standin="log")
    assert_refused(gate, ran, "Did you mean shm?" if command == "explain" else "min_free_gib")
