"""docker-compose.yml by docker-compose: train starts after a pass, and never after a fail."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command.images import write_images
from tests.command.running import SMALL_LOADER
from tests.engines.engine import REPOSITORY, Engine, Missing, install

pytestmark = pytest.mark.timeout(400)

SHIPPED = REPOSITORY / "docker-compose.yml"
FOLDERS = {"DATA": "data", "REPORTS": "reports"}


@dataclass
class Project:
    """The shipped file with what this machine cannot give taken out: GPUs, 8 CPUs, 32 GiB."""

    folder: Path
    docker: Engine
    image: str

    def __post_init__(self) -> None:
        self.name = f"pf{uuid.uuid4().hex[:10]}"
        self.document: Any = yaml.safe_load(SHIPPED.read_text("utf-8"))
        del self.document["x-node"]
        self.services = self.document["services"]
        for service in self.services.values():
            del service["deploy"]
        self.services["preflight"]["command"] = [
            "run",
            "--thresholds=cpu",
            "--data=/data",
            *SMALL_LOADER,
        ]
        seen = "import os; print(os.listdir('/data'), os.statvfs('/dev/shm').f_blocks > 1 << 20)"
        self.services["train"]["command"] = ["python3", "-c", f"print('TRAINING'); {seen}"]
        self.services["train"]["network_mode"] = "none"

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run docker-compose on it."""
        file = self.folder / "docker-compose.yml"
        file.write_text(yaml.safe_dump(self.document), "utf-8")
        names = {name: str(self.folder / place) for name, place in FOLDERS.items()}
        environment = {
            **self.docker.environment, **names, "CPUS": "1.5", "MEMORY": "2g",
            "PREFLIGHT_IMAGE": self.image, "TRAIN_IMAGE": "localhost/torch-standin:1",
        }  # fmt: skip
        return subprocess.run(
            ["docker-compose", "-p", self.name, "-f", str(file), *arguments],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def report(self) -> dict[str, Any]:
        """What the gate left on the host."""
        return dict(json.loads((self.folder / "reports/preflight.json").read_text("utf-8")))


@pytest.fixture
def project(docker: Engine, docker_image: str, tmp_path: Path) -> Iterator[Project]:
    """The project in a folder; nothing of it stays."""
    try:
        install("compose")
    except Missing as why:
        pytest.skip(str(why))
    for place in FOLDERS.values():
        (tmp_path / place).mkdir()
        (tmp_path / place).chmod(0o777)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    write_images(tmp_path / "data", 40)
    project = Project(tmp_path, docker, docker_image)
    try:
        yield project
    finally:
        project("down", "-t", "0", "--volumes")


def test_train_starts_after_a_pass_with_the_same_shm_and_data(project: Project):
    up = project("up", "--no-build", "--no-color")
    assert up.returncode == 0, up.stdout + up.stderr
    logs = up.stdout + project("logs", "--no-color", "train").stdout
    assert "TRAINING" in logs and "class0" in logs and "True" in logs
    report = project.report()
    assert report["exit_code"] == 0
    facts = report["facts"]
    assert (facts["cpu"]["quota"], round(facts["shm"]["size_gib"])) == (1.5, 8)
    assert facts["memory"]["limit_gib"] == pytest.approx(2)
    assert report["settings"]["options"]["data"] == "/data"


def test_train_never_starts_after_a_fail(project: Project):
    project.services["preflight"]["command"].append("--set=shm.min_free_gib=1e6")
    up = project("up", "--no-build", "--no-color")
    assert up.returncode == 1, up.stdout + up.stderr
    assert "TRAINING" not in up.stdout + project("logs", "--no-color", "train").stdout
    assert project.report()["exit_code"] == 1


@pytest.mark.parametrize(("limit", "code"), [("0", 0), ("1e6", 1)])
def test_the_gate_alone_has_its_own_exit_code(project: Project, limit: str, code: int):
    arguments = ("run", "--thresholds=cpu", "--check=shm", f"--set=shm.min_free_gib={limit}")
    ran = project("run", "--rm", "-T", "preflight", *arguments)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert ran.stdout.startswith("FAIL" if code else "PASS")


def test_a_gpu_that_the_engine_cannot_give_stops_it_all(project: Project):
    shipped = yaml.safe_load(SHIPPED.read_text("utf-8"))["services"]
    for name, service in project.services.items():
        service["deploy"] = shipped[name]["deploy"]
    up = project("up", "--no-build", "--no-color")
    assert up.returncode == 1
    assert "could not select device driver" in up.stderr.replace("\n", " ")
    assert "TRAINING" not in up.stdout
