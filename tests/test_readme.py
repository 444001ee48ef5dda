"""README says what is there: options, variables, checks, exit codes, commands, files."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import preflight
from preflight import api, checks, exit_code
from preflight.checks.dataloader.explained import EXAMPLES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def help_of(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "preflight", *command, "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_options_and_variables_exist() -> None:
    text = help_of("run")
    known = text + help_of("thresholds", "show") + help_of("thresholds", "import")
    known += help_of("report")
    others = {
        "--index-url", "--extra-index-url",  # of pip
        "--gpus", "--shm-size", "--build-arg", "--rm", "--network", "--read-only", "--tmpfs",
        "--user", "--build", "--device-read-bps",  # of docker
        "--standalone", "--nproc-per-node", "--no-python",  # of torchrun
        "--ntasks-per-node", "--gpus-per-task",  # of srun
        "--show", "--only", "--repeat",  # of tests.cases and bench
    }  # fmt: skip
    for option in set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", README)) - others:
        assert option in known, f"README names {option}"
    no_option = {"PREFLIGHT_CPU_REQUEST"}  # a fact that only Kubernetes knows
    for variable in set(re.findall(r"PREFLIGHT_[A-Z_]+", README)) - no_option:
        assert variable in text, f"README names {variable}"


def test_every_check_and_exit_code_has_its_row() -> None:
    for id in checks.discover():
        assert re.search(rf"^\| `{id}` \|", README, re.MULTILINE), f"README has no row for {id}"
    for code in (exit_code.PASS, exit_code.FAIL, exit_code.USAGE, exit_code.UNDECIDED):
        assert re.search(rf"^\| {code} \|", README, re.MULTILINE)


def test_three_outputs_are_those_of_explain() -> None:
    assert len(EXAMPLES) > 1000 and EXAMPLES in README


def test_commands_exist() -> None:
    commands = help_of()
    for line in re.findall(r"^    preflight (\w+)", README, re.MULTILINE):
        assert f" {line} " in commands, f"README names `preflight {line}`"


def test_the_threshold_file_of_the_readme_is_a_good_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(# site.yaml\n.*?)```", README, re.DOTALL)
    (tmp_path / "site.yaml").write_text(example)
    done = subprocess.run(
        [sys.executable, "-m", "preflight", "thresholds", "validate", str(tmp_path / "site.yaml")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_links_and_make_targets_exist() -> None:
    for target in re.findall(r"\]\((\w[\w./-]+)\)", README):
        assert (ROOT / target).is_file(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


@pytest.mark.parametrize("needed_gib", [0, 1e6])
def test_the_python_of_the_readme_goes_on_only_after_a_pass(
    needed_gib: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    ask, reports = api.run, []

    def quickly(**options: Any) -> preflight.GateReport:
        inspect.signature(ask).bind(**options)
        values = {"limits.min_memory_headroom_gib": needed_gib, "loader.num_workers": 1}
        quick = {"thresholds": "cpu", "check": "limits", "data": tmp_path, "set": values}
        reports.append(ask(**{**options, **quick}))
        return reports[0]

    monkeypatch.setattr(api, "run", quickly)
    if needed_gib:
        with pytest.raises(SystemExit) as ended:
            exec(example, {})
        assert ended.value.code == exit_code.FAIL
    else:
        exec(example, {})
    assert reports[0].passed == (needed_gib == 0)


def test_what_the_readme_says_of_python_is_there() -> None:
    section = README.partition("## From Python\n")[2].partition("\n## ")[0]
    for name in re.findall(r"report\.(\w+)", section):
        assert name in preflight.GateReport.model_fields or hasattr(preflight.GateReport, name)
    for name in [*re.findall(r"`(\w+)=", section), "deadline_s"]:
        assert name in inspect.signature(api.run).parameters
