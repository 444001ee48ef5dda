"""README says what is there: options, variables, checks, exit codes, commands, files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from preflight import checks, exit_code

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
    known = text + help_of("thresholds", "show") + help_of("report")
    pips = {"--index-url", "--extra-index-url"}
    for option in set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", README)) - pips:
        assert option in known, f"README names {option}"
    for variable in set(re.findall(r"PREFLIGHT_[A-Z_]+", README)):
        assert variable in text, f"README names {variable}"


def test_every_check_and_exit_code_has_its_row() -> None:
    for id in checks.discover():
        assert re.search(rf"^\| `{id}` \|", README, re.MULTILINE), f"README has no row for {id}"
    for code in (exit_code.PASS, exit_code.FAIL, exit_code.USAGE, exit_code.UNDECIDED):
        assert re.search(rf"^\| {code} \|", README, re.MULTILINE)


def test_commands_exist() -> None:
    commands = help_of()
    for line in re.findall(r"^    preflight (\w+)", README, re.MULTILINE):
        assert f" {line} " in commands, f"README names `preflight {line}`"


def test_the_threshold_file_of_the_readme_is_a_good_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
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
