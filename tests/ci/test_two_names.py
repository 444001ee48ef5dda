"""Every file of ci/ in the hands of a reader: copied elsewhere, two names changed, good for use.

What to change is what the document beside the file says. The engines themselves are in
tests/engines; here the copies are held to schemas, linters and shells.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest

from tests.ci.kustomize import KUBERNETES, build, containers, documents, name_images, pod_spec
from tests.ci.templates import (
    ACTION,
    CI,
    GITLAB,
    JENKINSFILE,
    README,
    WORKFLOW,
    Node,
    gitlab_script,
    jenkins_builds,
    read,
    readme_blocks,
)

pytestmark = pytest.mark.timeout(100)

IMAGE = "registry.example.com/ml/preflight:7"
TRAINING = "registry.example.com/ml/training:8"
OURS = "ghcr.io/OWNER/preflight:0.1.0"
THEIRS = "ghcr.io/OWNER/training:1.0"


def changed(source: Path, target: Path, *changes: tuple[str, str]) -> Path:
    """A copy with at most two names changed, each in one place."""
    assert len(changes) <= 2
    text = source.read_text()
    for before, after in changes:
        assert text.count(before) == 1, f"{before!r} is there {text.count(before)} times"
        text = text.replace(before, after)
    assert "OWNER" not in text, "a name that has to be changed, too"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def says(document: Path, *words: str) -> None:
    """One line (or table row) of a document names what to change."""
    lines = document.read_text().splitlines()
    assert any(all(word in line for word in words) for line in lines), f"{document}: {words}"


def good(tool: str, *arguments: str | Path, cwd: Path = CI) -> None:
    path = Path(sys.executable).with_name(tool)
    if not path.exists():
        path = Path(str(shutil.which(tool)))
    done = subprocess.run([path, *arguments], cwd=cwd, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr


# -- CI ---------------------------------------------------------------------------------------


def test_github(tmp_path: Path) -> None:
    says(README, "`github/action.yml`", "`runs-on` and `image` in your job")
    says(README, "`github/preflight.yml`", "defaults of `runner` and `image`")
    place = tmp_path / ".github"
    changed(ACTION, place / "actions/preflight/action.yml")
    (example,) = [block for block in readme_blocks("yaml") if "runs-on" in block]
    (tmp_path / "example").write_text(example)
    job = changed(
        tmp_path / "example", place / "workflows/train.yml",
        ("runs-on: gpu", "runs-on: b17"), (OURS, IMAGE),
    )  # fmt: skip
    image = "one on PATH.\n        type: string\n        default: "
    called = changed(
        WORKFLOW, place / "workflows/preflight.yml",
        ("default: gpu", "default: b17"), (f'{image}""', f"{image}{IMAGE}"),
    )  # fmt: skip
    inputs = read(called)[True]["workflow_call"]["inputs"]
    assert (inputs["runner"]["default"], inputs["image"]["default"]) == ("b17", IMAGE)
    for workflow in (job, called):
        good("check-jsonschema", "--builtin-schema", "vendor.github-workflows", workflow)
    (place / "actionlint.yaml").write_text("self-hosted-runner: {labels: [b17]}\n")
    (tmp_path / ".git").mkdir()
    good("actionlint", cwd=tmp_path)


def test_gitlab(tmp_path: Path) -> None:
    says(README, "`gitlab/preflight.gitlab-ci.yml`", "`tags` and `image`")
    copy = changed(GITLAB, tmp_path / GITLAB.name, ("[gpu]", "[b17]"), (OURS, IMAGE))
    gate = read(copy)[".preflight"]
    assert (gate["tags"], gate["image"]["name"]) == (["b17"], IMAGE)
    good("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", copy)
    (example,) = [block for block in readme_blocks("yaml") if "include" in block]
    assert gitlab_script(example).endswith("python train.py")


@pytest.mark.skipif(shutil.which("groovy") is None, reason="Debian's groovy is not installed")
def test_jenkins(tmp_path: Path) -> None:
    says(README, "`jenkins/Jenkinsfile`", "`label` and `image`")
    copy = changed(
        JENKINSFILE, tmp_path / "Jenkinsfile",
        ("            label 'gpu'", "            label 'b17'"), (OURS, IMAGE),
    )  # fmt: skip
    node = Node(tmp_path / "node")
    (node.folder / "environment.json").write_text(json.dumps(node.environment(0, True)))
    (built,) = jenkins_builds(copy, [node])
    assert built["result"] == "SUCCESS"
    assert (built["agent"]["label"], built["agent"]["image"]) == ("b17", IMAGE)


# -- Kubernetes -------------------------------------------------------------------------------

# Folder -> which of the two names it has.
FOLDERS = {
    "training-pod": {IMAGE, TRAINING}, "training-job": {IMAGE, TRAINING},
    "node-admission": {IMAGE}, "fleet": {IMAGE}, "fleet-host-path": {IMAGE},
    "node-problem-detector": set(), "node-readiness": set(),
}  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_kubernetes(tmp_path: Path, folder: str) -> None:
    readme = KUBERNETES / "README.md"
    names = {0: "none", 1: "preflight's image", 2: "both images"}[len(FOLDERS[folder])]
    says(readme, f"`{folder}/`", f"| {names}")
    shutil.copytree(KUBERNETES, tmp_path / "ours")
    name_images(tmp_path / "ours/common/kustomization.yaml", IMAGE, TRAINING)
    if folder == "node-readiness":
        assert "OWNER" not in (tmp_path / "ours" / folder / "rule.yaml").read_text()
        return
    built = build(tmp_path / "ours" / folder)
    used = {c["image"] for document in built for c in containers(pod_spec(document))}
    assert {name for name in used if "example.com" in name} == FOLDERS[folder]
    assert "OWNER" not in json.dumps(built)
    for document in built:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_claims_that_training_expects_are_named() -> None:
    text = (KUBERNETES / "README.md").read_text()
    for folder in ("training-pod", "training-job"):
        for document in build(KUBERNETES / folder):
            spec = pod_spec(document)
            for volume in spec["volumes"] if spec else ():
                claim = volume.get("persistentVolumeClaim", {}).get("claimName")
                assert claim is None or f"`{claim}`" in text


# -- the job's image, Slurm, systemd ----------------------------------------------------------


def test_job_image(tmp_path: Path) -> None:
    pod = CI / "job-image/pod.yaml"
    says(pod, "Two names to change", "both images")
    (document,) = documents(changed(pod, tmp_path / "pod.yaml", (OURS, IMAGE), (THEIRS, TRAINING)))
    images = [container["image"] for container in containers(pod_spec(document))]
    assert images == [IMAGE, TRAINING, TRAINING]
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    changed(CI / "job-image/Dockerfile", tmp_path / "Dockerfile")  # a build argument names the job


def test_slurm(tmp_path: Path) -> None:
    readme = CI / "slurm/README.md"
    says(readme, "`settings.sh`", "two names to change", "where preflight is, and the thresholds")
    says(readme, "`job.sbatch`", "two names to change", "`preflight`", "`train`")
    settings = changed(
        CI / "slurm/settings.sh", tmp_path / "settings.sh",
        ("preflight=/opt/preflight/bin/preflight", "preflight=/opt/ml/bin/preflight"),
        ("thresholds=quick ", "thresholds=/etc/slurm/preflight/site.yaml "),
    )  # fmt: skip
    told = subprocess.run(
        ["sh", "-c", f'. {settings}; echo "$preflight $thresholds"'],
        capture_output=True, text=True, timeout=10,
    )  # fmt: skip
    assert told.stdout == "/opt/ml/bin/preflight /etc/slurm/preflight/site.yaml\n"
    job = changed(
        CI / "slurm/job.sbatch", tmp_path / "job.sbatch",
        ("preflight=/opt/preflight/bin/preflight", "preflight=/opt/ml/bin/preflight"),
        ("train=(python train.py)", "train=(python -m ours.train --epochs 90)"),
    )  # fmt: skip
    good("shellcheck", "--norc", "-s", "bash", job)


def test_systemd(tmp_path: Path) -> None:
    unit = CI / "systemd/preflight.service"
    says(unit, "Two names to change", "where preflight is installed", "your scheduler's daemon")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = unit.read_text()
    body = text.index("[Unit]")  # above it is what the reader reads
    assert text[body:].count("slurmd.service") == 2
    assert text[body:].count("/opt/preflight/bin/preflight") == 1
    copy = tmp_path / unit.name
    copy.write_text(
        text.replace("slurmd.service", "kubelet.service").replace(
            "/opt/preflight/bin/preflight", shutil.which("true") or "/bin/true"
        )
    )
    good("systemd-analyze", "verify", copy)
