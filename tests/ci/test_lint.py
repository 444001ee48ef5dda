"""CI templates and Compose file by the engines' published schemas and linters not ours, offline.

GitHub's two files are laid out as a repository would have them, for actionlint to see both.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci.templates import (
    ACTION,
    CI,
    GITLAB,
    JENKINSFILE,
    README,
    WORKFLOW,
    github_script,
    gitlab,
    jenkins_script,
    read,
    readme_blocks,
)

pytestmark = pytest.mark.timeout(60)

FILES = [ACTION, WORKFLOW, GITLAB]
COMPOSE = CI.parent / "docker-compose.yml"
YAMLLINT = Path(__file__).with_name("yamllint.yaml")


def lint(tool: str, *arguments: str | Path, given: str | None = None, cwd: Path = CI) -> None:
    """Run a linter of this environment; its findings are the failure's text."""
    path = Path(sys.executable).with_name(tool)
    done = subprocess.run(
        [path, *arguments], input=given, cwd=cwd, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that copied GitHub's files where ci/README.md says, and calls them."""
    for source, place in [
        (ACTION, ".github/actions/preflight/action.yml"),
        (WORKFLOW, ".github/workflows/preflight.yml"),
    ]:
        target = tmp_path / place
        target.parent.mkdir(parents=True)
        shutil.copy(source, target)
    (train,) = [block for block in readme_blocks("yaml") if "runs-on" in block]
    (tmp_path / ".github/workflows/train.yml").write_text(train)
    (tmp_path / ".github/workflows/calls.yml").write_text(CALLS)
    (tmp_path / ".github/actionlint.yaml").write_text("self-hosted-runner: {labels: [gpu]}\n")
    (tmp_path / ".git").mkdir()
    return tmp_path


CALLS = """
name: calls
on: workflow_dispatch
permissions: {contents: read}
jobs:
  gate:
    uses: ./.github/workflows/preflight.yml
    with: {runner: node-17, workload: resnet50, undecided: warn}
  drain:
    needs: gate
    if: ${{ always() && needs.gate.outputs.outcome == 'fail' }}
    runs-on: ubuntu-latest
    timeout-minutes: 5
    steps: [{run: echo drain}]
"""


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.github-actions", ACTION),
        ("vendor.github-workflows", WORKFLOW),
        ("custom.github-workflows-require-timeout", WORKFLOW),
        ("vendor.gitlab-ci", GITLAB),
        ("vendor.compose-spec", COMPOSE),
    ],
)
def test_schema(schema: str, path: Path) -> None:
    lint("check-jsonschema", "--builtin-schema", schema, path)


def test_schema_of_readme_examples(repository: Path, tmp_path: Path) -> None:
    train = repository / ".github/workflows/train.yml"
    lint("check-jsonschema", "--builtin-schema", "vendor.github-workflows", train)
    lint("check-jsonschema", "--builtin-schema", "custom.github-workflows-require-timeout", train)
    (example,) = [block for block in readme_blocks("yaml") if "include" in block]
    path = tmp_path / "example.gitlab-ci.yml"
    path.write_text(example)
    schema = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
    lint("check-jsonschema", *schema, path)


def test_actionlint(repository: Path) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    lint("actionlint", "-shellcheck", shellcheck, cwd=repository)


@pytest.mark.parametrize(
    ("persona", "name"),
    [
        ("pedantic", "workflows/preflight.yml"),
        ("pedantic", "actions/preflight/action.yml"),
        ("regular", "workflows/train.yml"),
    ],
)
def test_zizmor(repository: Path, persona: str, name: str) -> None:
    path = repository / ".github" / name
    lint("zizmor", "--offline", "--quiet", "--no-ignores", "--persona", persona, path)


def test_yamllint() -> None:
    lint("yamllint", "--strict", "-c", YAMLLINT, *FILES, COMPOSE)


@pytest.mark.parametrize(
    ("shell", "script"),
    [
        ("bash", github_script()),
        ("sh", "\n".join(gitlab()[".preflight"]["script"])),
        ("sh", jenkins_script()),
    ],
    ids=["github", "gitlab", "jenkins"],
)
def test_shellcheck(shell: str, script: str) -> None:
    lint("shellcheck", "--norc", "--severity", "style", "-s", shell, "-", given=script)


def test_workflow_and_action_fit() -> None:
    """actionlint looks neither into an action's expressions nor for one named with `$/`."""
    action, workflow = read(ACTION), read(WORKFLOW)
    assert set(re.findall(r"inputs\.([\w-]+)", ACTION.read_text())) == set(action["inputs"])
    (step,) = [step for step in workflow["jobs"]["gate"]["steps"] if step.get("id") == "preflight"]
    assert set(step["with"]) <= set(action["inputs"])
    declared = workflow[True]["workflow_call"]["inputs"]  # YAML 1.1 reads `on` as true
    assert set(step["with"]) == set(declared) - {"runner"}
    for name in step["with"]:
        assert declared[name]["default"] == action["inputs"][name]["default"]
        assert declared[name]["description"] == action["inputs"][name]["description"]
    assert "steps.preflight.outputs.outcome" in workflow["jobs"]["gate"]["outputs"]["outcome"]
    assert "outcome" in action["outputs"]


def test_actions_are_pinned_by_commit_and_say_their_version() -> None:
    for path in (ACTION, WORKFLOW, README):
        for line in re.findall(r"uses: (.*)", path.read_text()):
            own = line == "$/.github/actions/preflight"
            assert own or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line


def test_permissions_are_minimal() -> None:
    workflow = read(WORKFLOW)
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["gate"]["permissions"] == {"contents": "read"}


def test_options_and_variables_exist() -> None:
    command = Path(sys.executable).with_name("preflight")
    text = subprocess.run(
        [command, "run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    texts = {path: path.read_text() for path in [*FILES, JENKINSFILE, README]}
    used = set(re.findall(r"\bPREFLIGHT_[A-Z_]+", " ".join(texts.values())))
    assert "PREFLIGHT_WORKLOAD" in used
    known = set(re.findall(r"PREFLIGHT_[A-Z_]+", text))
    assert used - known == set()
    scripts = [github_script(), *gitlab()[".preflight"]["script"], jenkins_script()]
    for script in scripts:
        options = set(re.findall(r"(?:preflight|\") run [\"']?(--[a-z-]+)", script))
        assert options == {"--report-dir"}
        assert options <= set(re.findall(r"--[a-z-]+", text))
