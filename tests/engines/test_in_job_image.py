"""Both ways of running in the job's own image: a virtual environment, and a copied folder."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.command.running import SMALL_LOADER
from tests.engines.containers import HARDENED, HOST
from tests.engines.engine import BASE, REPOSITORY, Engine

pytestmark = pytest.mark.timeout(400)

JOB = "localhost/job:1"
JOBS_PILLOW, JOBS_PYDANTIC = "11.3.0", "1.10.24"
WITH_VENV = "localhost/job-with-preflight:1"


@pytest.fixture(scope="module")
def job(podman: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with training in it, and packages of its own that preflight would take newer."""
    folder = tmp_path_factory.mktemp("job")
    packages = f"pillow=={JOBS_PILLOW} pydantic=={JOBS_PYDANTIC}"
    (folder / "Dockerfile").write_text(
        f"FROM {BASE}\nRUN pip install --no-cache-dir -q {packages}\n"
    )
    return podman.build(JOB, folder)


@pytest.fixture
def copied(podman: Engine, image: str, tmp_path: Path) -> Iterator[Path]:
    """What the init step of README leaves in an emptyDir."""
    folder = tmp_path / "preflight"
    folder.mkdir()
    folder.chmod(0o777)
    done = podman.run(
        *HARDENED, "-v", f"{folder}:/preflight", "--entrypoint=cp", image,
        "-r", "/opt/preflight/.", "/preflight/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    yield folder


def test_a_copied_folder_runs_in_an_unmodified_job_image(
    podman: Engine, job: str, copied: Path, tmp_path: Path
):
    reports = tmp_path / "reports"
    reports.mkdir()
    reports.chmod(0o777)
    done = podman.run(
        *HARDENED, "--tmpfs=/tmp", "-v", f"{copied}:/preflight:ro", "-v", f"{reports}:/reports",
        job, "/preflight/bin/preflight", *HOST, "--report-dir=/reports",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((reports / "preflight.json").read_text())
    assert {result["outcome"] for result in report["results"]} <= {"pass", "skip"}


@pytest.mark.parametrize(("limit", "trains"), [("0", True), ("1e6", False)])
def test_the_shipped_pod_gates_with_the_jobs_own_image(
    podman: Engine, image: str, job: str, tmp_path: Path, limit: str, trains: bool
):
    pod = yaml.safe_load((REPOSITORY / "ci/job-image/pod.yaml").read_text("utf-8"))
    name = pod["metadata"]["name"] = f"pf-{uuid.uuid4().hex[:10]}"
    spec = pod["spec"]
    for volume in spec["volumes"]:  # podman makes neither
        volume["emptyDir"] = {}
    copy, gate = spec["initContainers"]
    (training,) = spec["containers"]
    for container in (gate, training):  # podman gives a pod its own
        container["volumeMounts"] = [m for m in container["volumeMounts"] if m["name"] != "shm"]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != "shm"]
    gate["command"] += ["--thresholds=cpu", *SMALL_LOADER, "--set", f"shm.min_free_gib={limit}"]
    training["command"] = ["python3", "-c", "print('TRAINING')"]
    for container, its in ((copy, image), (gate, job), (training, job)):
        container |= {"image": its, "imagePullPolicy": "Never"}
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod), "utf-8")
    try:
        played = podman("kube", "play", "--network", "none", str(file))
        gated = podman("logs", f"{name}-preflight").stdout  # gone after a pass
        assert (played.returncode == 0) == trains, played.stderr + gated
        if trains:
            podman("wait", f"{name}-training")
        else:
            assert gated.startswith("FAIL node ")
        trained = podman("logs", f"{name}-training").stdout
        assert ("TRAINING" in trained) == trains
    finally:
        podman("kube", "down", str(file))


def test_the_loader_is_measured_with_the_jobs_own_packages(podman: Engine, job: str, copied: Path):
    mount = ("-v", f"{copied}:/preflight:ro")
    script = (
        "import sys, runpy; sys.argv = ['preflight', '--version']\n"
        "import atexit, os\n"
        "os._exit = lambda code: None\n"
        "runpy.run_path('/preflight/bin/preflight', run_name='__main__')\n"
        "import PIL, torch, pydantic; print(PIL.__version__, torch.__file__, pydantic.__version__)"
    )
    done = podman.run(*HARDENED, *mount, job, "python3", "-c", script)
    assert done.returncode == 0, done.stderr
    pillow, torch, pydantic = done.stdout.split()[-3:]
    assert (pillow, torch) == (
        JOBS_PILLOW,
        "/opt/conda/lib/python3.11/site-packages/torch/__init__.py",
    )
    assert pydantic.startswith("2.")


def test_a_python_that_it_cannot_run_under_is_named_in_one_line(
    podman: Engine, job: str, copied: Path
):
    for file in (copied / "site/pydantic_core").glob("*cpython-311*"):
        file.unlink()
    mount = ("-v", f"{copied}:/preflight:ro")
    done = podman.run(*HARDENED, *mount, job, "/preflight/bin/preflight", *HOST)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "/opt/conda/bin/python3 is Python 3.11" in line and "cpython-312" in line


def test_a_virtual_environment_leaves_the_jobs_packages_alone(podman: Engine, job: str):
    image = podman.build(
        WITH_VENV, REPOSITORY, "-f", str(REPOSITORY / "ci/job-image/Dockerfile"),
        "--build-arg", f"JOB_IMAGE={job}",
    )  # fmt: skip
    freeze = ("python3", "-m", "pip", "freeze", "--all")
    before, after = (podman.run("--network=none", each, *freeze).stdout for each in (job, image))
    assert f"pydantic=={JOBS_PYDANTIC}" in before
    assert after == before
    done = podman.run(*HARDENED, "--tmpfs=/tmp", image, "/opt/preflight/bin/preflight", *HOST)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = podman.run(
        "--network=none", image, "/opt/preflight/bin/python", "-c",
        "import PIL, torch, pydantic; print(PIL.__version__, torch.__file__, pydantic.VERSION)",
    )  # fmt: skip
    pillow, torch, pydantic = seen.stdout.split()
    assert (pillow, "/opt/conda/" in torch, pydantic[0]) == (JOBS_PILLOW, True, "2")
