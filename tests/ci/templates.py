"""The templates of ci/ as their engines take them: the shell in each, and how it is run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CI = Path(__file__).parents[2] / "ci"
ACTION = CI / "github" / "action.yml"
WORKFLOW = CI / "github" / "preflight.yml"
GITLAB = CI / "gitlab" / "preflight.gitlab-ci.yml"
JENKINSFILE = CI / "jenkins" / "Jenkinsfile"
README = CI / "README.md"
_JENKINS = Path(__file__).with_name("jenkins.groovy")

# Exits as told and leaves the reports it is told to, in the folder that the template names.
PREFLIGHT = r"""#!/bin/sh
for word in "$@"; do
  case "$word" in --report-dir=*) reports=${word#--report-dir=} ;; esac
done
printf '%s\n' "$@" > "$STANDIN/arguments"
env > "$STANDIN/environment"
printf '::error::text from the machine'  # a file's name may read so, and the line may be cut short
if [ "$STANDIN_REPORT" = yes ]; then
  echo '<testsuites/>' > "$reports/preflight.xml"
  echo '{}' > "$reports/preflight.json"
fi
case "$STANDIN_CODE" in
  hang) trap '' TERM; for _ in $(seq 150); do sleep 0.1; done ;;  # nothing stays behind
  137) kill -KILL $$ ;;
  *) exit "$STANDIN_CODE" ;;
esac
"""
# Starts what stands behind the image in its arguments, in the same folder tree.
DOCKER = r"""#!/bin/sh
printf '%s\n' "$*" >> "$STANDIN/docker"
case "$1 ${STANDIN_DOCKER:-}" in
  "image absent") exit 1 ;;
  "pull absent") exit 1 ;;
  "run no-gpu") echo 'could not select device driver "" with capabilities: [[gpu]]' >&2; exit 125 ;;
  run*)
    printf '%s\n' "$@" > "$STANDIN/run"
    while [ "$1" != --entrypoint ]; do shift; done
    entry=$2
    shift 3
    exec "$entry" "$@" ;;
esac
"""
# The templates wait for minutes; here it is a moment. What they asked for is kept.
TIMEOUT = r"""#!/bin/sh
printf '%s\n' "$1 $2 $3" >> "$STANDIN/timeouts"
shift 3
exec "$REAL_TIMEOUT" -k 0.3 "$STANDIN_PATIENCE" "$@"
"""


@dataclass(frozen=True)
class Ended:
    """How a template's script ended."""

    code: int
    output: str
    folder: Path
    outputs: dict[str, str]

    def noted(self, name: str) -> list[str]:
        """The lines that a stand-in wrote; none where it was not called."""
        path = self.folder / "standin" / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def said(self) -> str:
        """The template's own last word."""
        return self.output.splitlines()[-1]


@dataclass
class Node:
    """A folder to run in, with stand-ins on PATH."""

    folder: Path
    commands: dict[str, str] = field(
        default_factory=lambda: {"preflight": PREFLIGHT, "docker": DOCKER, "timeout": TIMEOUT}
    )

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir(parents=True)
        (self.folder / "standin").mkdir()
        (self.folder / "job").mkdir()
        for name, text in self.commands.items():
            path = self.folder / "bin" / name
            path.write_text(text)
            path.chmod(0o755)

    @property
    def job(self) -> Path:
        """The job's working folder."""
        return self.folder / "job"

    @property
    def reports(self) -> Path:
        """Where a template keeps the reports."""
        return self.job / "preflight-reports"

    def environment(self, code: int | str, report: bool, patience: str = "30") -> dict[str, str]:
        """Variables for the stand-ins, and no PREFLIGHT_ of the caller's."""
        own = {name: value for name, value in os.environ.items() if "PREFLIGHT" not in name}
        return own | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "REAL_TIMEOUT": _real_timeout(),
            "STANDIN": str(self.folder / "standin"),
            "STANDIN_CODE": str(code),
            "STANDIN_REPORT": "yes" if report else "no",
            "STANDIN_PATIENCE": patience,
        }

    def run(self, engine: str, environment: dict[str, str], script: str | None = None) -> Ended:
        """The template's script, by the shell and the options that the engine gives it."""
        path = self.folder / "script"
        outputs = self.folder / "outputs"
        outputs.write_text("")
        if engine.startswith("github"):
            path.write_text(script or github_script())
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(path)]
            image = "registry.example.com/image:1" if engine == "github image" else ""
            environment = {
                "GITHUB_OUTPUT": str(outputs), "RUNNER_NAME": "gpu 1/2", "GATE_IMAGE": image,
                "GATE_UNDECIDED": "fail", "GATE_SECONDS": "300", "GATE_SHM_SIZE": "8g",
                "PREFLIGHT_DATA": "",
            } | environment  # fmt: skip
        elif engine.startswith("gitlab"):
            path.write_text(script or "\n".join(gitlab()[".preflight"]["script"]))
            command = gitlab_command(engine.split()[1], str(path))
        else:
            path.write_text(script or jenkins_script())
            command = ["sh", "-xe", str(path)]
        done = subprocess.run(
            command, cwd=self.job, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=40,
        )  # fmt: skip
        pairs = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
        return Ended(done.returncode, done.stdout, self.folder, pairs)


def _real_timeout() -> str:
    (found,) = [path for path in ("/usr/bin/timeout", "/bin/timeout") if Path(path).exists()][:1]
    return found


def read(path: Path) -> dict[str, Any]:
    """A YAML file without tags."""
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def gitlab() -> dict[str, Any]:
    """The GitLab template."""
    return read(GITLAB)


class Resolving(yaml.SafeLoader):
    """Reads GitLab's `!reference [job, key]` as what it is."""


Resolving.add_constructor(
    "!reference", lambda loader, node: ("reference", *loader.construct_sequence(node))
)


def gitlab_script(example: str, job: str = "train") -> str:
    """The script of a job that includes the template, whole."""
    lines: list[str] = []
    for line in yaml.load(example, Resolving)[job]["script"]:
        lines += gitlab()[line[1]][line[2]] if isinstance(line, tuple) else [line]
    return "\n".join(lines)


def gitlab_command(shell: str, script: str) -> list[str]:
    """How GitLab's runner starts a script: errexit, in one eval that reads nothing."""
    pipefail = ("-o", "pipefail") if shell == "bash" else ()
    return [shell, "-e", *pipefail, "-c", ': | eval "$(cat "$1")"', shell, script]


def github_script() -> str:
    """The shell of the GitHub action."""
    (script,) = [step["run"] for step in read(ACTION)["runs"]["steps"] if "run" in step]
    return str(script)


def jenkins_script() -> str:
    """The shell between the Jenkinsfile's three quotes, in which Groovy replaces nothing."""
    (script,) = JENKINSFILE.read_text().split("'''")[1::2]
    assert "\\" not in script, "Groovy reads a backslash itself"
    return script


def jenkins_builds(jenkinsfile: Path, nodes: list[Node]) -> list[dict[str, Any]]:
    """What a build came to on each node, which has its environment.json: one Java for all."""
    java = shutil.which("java")
    assert java is not None
    done = subprocess.run(
        ["groovy", _JENKINS, jenkinsfile, *(node.folder for node in nodes)],
        env=os.environ | {"JAVA_HOME": str(Path(java).resolve().parents[1])},
        capture_output=True, text=True, timeout=80,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def readme_blocks(language: str) -> list[str]:
    """The fenced blocks of ci/README.md in one language."""
    parts = README.read_text().split(f"```{language}\n")[1:]
    return [part.split("```")[0] for part in parts]
