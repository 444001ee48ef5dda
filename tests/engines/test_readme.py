"""README's three main uses, by README's own lines: docker run, init container, CI gate.

Each block is read out of README.md and run as it stands, in a folder like a checkout. What is
replaced is said at each: /data/train, and what a test machine has not got.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.ci import templates
from tests.ci.kustomize import name_images
from tests.command.images import write_images
from tests.command.running import read_json
from tests.engines.containers import HARDENED
from tests.engines.engine import BASE, REPOSITORY, Daemon, Engine
from tests.engines.kube import FAILS, PASSES, Node, NoTmpfs, machine
from tests.engines.standin_gpus import Gpus
from tests.gpu_standins.building import Libraries

pytestmark = pytest.mark.timeout(400)

MOST_LINES = 10
TRAIN = "open('{place}/trained', 'w').write('yes')\n"


def block(heading: str) -> str:
    """The first code block below a heading of README.md; never more than ten lines."""
    text = (REPOSITORY / "README.md").read_text("utf-8")
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#+ )", text, re.MULTILINE | re.DOTALL)
    fenced, indented = r"^```\w+\n(?P<fenced>.*?)^```$", r"^(?P<indented>(?: {4}[^\n]*\n)+)"
    found = re.search(f"{fenced}|{indented}", section, re.MULTILINE | re.DOTALL)
    assert found, f"no code under {heading}"
    code = textwrap.dedent(found["fenced"] or found["indented"])
    assert len(code.splitlines()) <= MOST_LINES
    return code


def program(folder: Path, name: str, *lines: str) -> None:
    """Put a program into a folder for PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(("#!/bin/sh", *lines, "")))
    (folder / name).chmod(0o755)


def shell(script: str, folder: Path, environment: dict[str, str], path: Path):
    """Run lines as a reader's shell does, up to the first that fails."""
    environment = {**environment, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-e", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the image is built from, in a folder that every user may enter."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("LICENSE", "README.md", "pyproject.toml", "Dockerfile", ".dockerignore"):
        shutil.copy(REPOSITORY / name, folder)
    for name in ("docker", "preflight", "thresholds", "ci"):
        shutil.copytree(REPOSITORY / name, folder / name, symlinks=True)
    return folder


# -- docker run -------------------------------------------------------------------------------


@pytest.fixture
def gpus(docker_daemon: Daemon, libraries: Libraries, tmp_path: Path) -> Iterator[Gpus]:
    """The docker daemon of a machine with GPUs, and with README's base images."""
    gpus = Gpus(tmp_path / "gpus", libraries)
    gpus.folder.mkdir()
    gpus.put_hook()
    with docker_daemon.with_programs(gpus.programs):
        names = re.findall(
            r"docker\.io/pytorch/pytorch:\S+",
            (REPOSITORY / "Dockerfile").read_text() + block("docker run"),
        )
        gpus.put_base(docker_daemon.engine, sorted(set(names)))
        yield gpus


def test_docker_run(docker: Engine, gpus: Gpus, checkout: Path, tmp_path: Path):
    lines = block("docker run")
    assert "docker build" in lines and "docker run --rm --gpus all" in lines
    write_images(tmp_path / "train", 40)
    lines = lines.replace("/data/train", str(tmp_path / "train"))
    programs = tmp_path / "programs"
    # Without a bridge only the host's network reaches the package index.
    program(
        programs, "docker",
        'if [ "$1" = build ]; then shift; set -- build --network host "$@"; fi',
        f'exec {shutil.which("docker")} "$@"',
    )  # fmt: skip
    passed = shell(lines, checkout, docker.environment, programs)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    (verdict,) = re.findall(r"^(?:PASS|FAIL|UNDECIDED) node .*", passed.stdout, re.MULTILINE)
    assert verdict.startswith("PASS")
    report = read_json(checkout / "reports/preflight.json")
    assert report["exit_code"] == 0 and len(report["facts"]["gpus"]) == 2
    assert report["settings"]["options"]["data"] == "/data"
    assert (checkout / "reports/preflight.xml").exists()

    need = "--env PREFLIGHT_SET=shm.min_free_gib=1e6 --env PREFLIGHT_CHECK=shm"
    failed = shell(
        lines.replace("docker run ", f"docker run {need} "), checkout, docker.environment, programs
    )
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert read_json(checkout / "reports/preflight.json")["exit_code"] == 1


# -- init container ---------------------------------------------------------------------------


@pytest.fixture
def node(podman: Engine) -> Iterator[Node]:
    """A machine that plays Pods."""
    try:
        with machine(podman) as node:
            yield node
    except NoTmpfs as why:
        pytest.skip(str(why))


@pytest.fixture
def training_image(podman: Engine, tmp_path: Path) -> str:
    """An image with the train.py that the manifest starts."""
    folder = tmp_path / "training"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN.format(place="/output"))
    (folder / "Dockerfile").write_text(f"FROM {BASE}\nCOPY train.py .\n")
    return podman.build("localhost/training:2.0", folder)


@pytest.mark.parametrize(("thresholds", "trains"), [(PASSES, True), (FAILS, False)])
def test_init_container(
    node: Node, image: str, training_image: str, checkout: Path, tmp_path: Path, thresholds, trains
):
    """Two names change in ci/kubernetes/common, and the thresholds; kubectl.py stands in."""
    common = checkout / "ci/kubernetes/common"
    name_images(common / "kustomization.yaml", image, training_image)
    (common / "thresholds.yaml").write_text(yaml.safe_dump(thresholds))
    python = f'PYTHONPATH={REPOSITORY} exec {sys.executable} -m tests.engines.kubectl "$@"'
    program(tmp_path / "programs", "kubectl", python)
    environment = {**node.podman.environment, "KUBE_NODE": str(node.folder)}
    done = shell(block("In Kubernetes"), checkout, environment, tmp_path / "programs")
    assert done.returncode == 0, done.stderr
    assert f"{'PASS' if trains else 'FAIL'} node gpu-b17" in done.stdout
    (pod,) = node.played()
    if trains:
        assert node.podman("wait", f"{pod}-training").stdout.strip() == "0"
    assert (node.folder / "output/trained").exists() == trains


# -- CI gate ----------------------------------------------------------------------------------


@pytest.fixture
def gate_job(podman: Engine, image: str, tmp_path: Path):
    """README's GitLab job in the template's image, as a runner with a docker executor starts it."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    builds = tmp_path / "builds"
    builds.mkdir()
    builds.chmod(0o777)
    # Two names change in the copy.
    template = templates.GITLAB.read_text()
    for before, after in (("[gpu]", "[b17]"), ("ghcr.io/OWNER/preflight:0.1.0", image)):
        assert before in template
        template = template.replace(before, after)
    (builds / templates.GITLAB.name).write_text(template)
    (builds / "train.py").write_text(TRAIN.format(place="."))

    def run(thresholds: dict, *options: str):
        example = yaml.load(block("In CI"), templates.Resolving)
        (included,) = [builds / entry["local"] for entry in example["include"]]
        gate = templates.read(included)[example["train"]["extends"]]
        (builds / "site.yaml").write_text(yaml.safe_dump(thresholds))
        (builds / "script").write_text(templates.gitlab_script(block("In CI")))
        variables = {**gate["variables"], "PREFLIGHT_THRESHOLDS": "site.yaml"}
        given = [f"--env={name}={value}" for name, value in variables.items()]
        return podman.run(
            *HARDENED, "--tmpfs=/tmp", *options, *given, "-v", f"{builds}:/builds", "-w", "/builds",
            "--entrypoint", str(gate["image"]["entrypoint"][0]), gate["image"]["name"],
            *templates.gitlab_command("bash", "/builds/script"),
        )  # fmt: skip

    return run, builds


@pytest.mark.parametrize(("thresholds", "code"), [(PASSES, 0), (FAILS, 1)])
def test_ci_gate(gate_job, thresholds: dict, code: int):
    run, builds = gate_job
    done = run(thresholds)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("PASS node " if code == 0 else "FAIL node ") in done.stdout
    assert (builds / "trained").exists() == (code == 0)
    assert read_json(builds / "preflight-reports/preflight.json")["exit_code"] == code
    assert (builds / "preflight-reports/preflight.xml").exists()


def test_ci_gate_without_a_report_is_a_failure(gate_job, tmp_path: Path):
    run, builds = gate_job
    program(tmp_path / "other", "preflight", "exit 0")
    other = f"{tmp_path}/other/preflight:/opt/preflight/bin/preflight:ro"
    done = run(PASSES, "-v", other)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "no report was left" in done.stdout
    assert not (builds / "trained").exists()
