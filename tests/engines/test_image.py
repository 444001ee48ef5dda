"""The shipped Dockerfile, built and run by podman and by docker on a stand-in base."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import gpu_scenarios
from tests.command.running import STANDINS, wait_until
from tests.engines.containers import FAIL, HARDENED, HOST, QUICK, Gated, detached, gate
from tests.engines.engine import BASE, Engine
from tests.gpu_standins.building import Libraries

pytestmark = pytest.mark.timeout(400)  # the first one builds

MOST_ADDED_MB = 60
CDI_FOLDER = Path("/run/cdi")


def in_shell(engine: Engine, image: str, script: str) -> str:
    """What a shell in the image prints."""
    done = engine.run("--network=none", "--entrypoint=sh", image, "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


def inspect(engine: Engine, image: str) -> dict:
    (found,) = json.loads(engine("image", "inspect", image).stdout)
    return found


# -- what the image is ------------------------------------------------------------------------


def test_the_packages_of_the_base_stay_as_they_were(engine: Engine):
    freeze = "python3 -m pip freeze --all"
    before, after = (in_shell(engine, image, freeze) for image in (BASE, engine.image()))
    assert "torch==" in before and "pydantic==" not in before
    assert after == before
    tree = "export PYTHONPATH=/opt/preflight/site; "
    seen = in_shell(engine, engine.image(), tree + freeze)
    assert set(before.split()) <= set(seen.split())
    assert {"pydantic", "node-preflight"} <= {line.split("==")[0] for line in seen.split()}
    where = "python3 -c 'import torch, numpy; print(torch.__file__, numpy.__file__)'"
    assert in_shell(engine, engine.image(), tree + where) == in_shell(engine, BASE, where)


def test_dockers_base_lets_pip_install_nothing(docker: Engine):
    install = "python3 -m pip install --no-index six 2>&1 || :"
    assert "externally-managed-environment" in in_shell(docker, BASE, install)


def test_it_adds_little_to_a_base_with_torch_and_numpy(engine: Engine):
    added = inspect(engine, engine.image())["Size"] - inspect(engine, BASE)["Size"]
    assert 20e6 < added < MOST_ADDED_MB * 1e6


def test_it_says_what_it_is_and_brings_no_driver_library(engine: Engine):
    config = inspect(engine, engine.image())["Config"]
    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items()}
    assert (labels["title"], labels["licenses"], labels["name"]) == (
        "preflight",
        "Apache-2.0",
        BASE,
    )
    version = engine.run("--network=none", engine.image(), "--version").stdout
    assert version == f"preflight {labels['version']}\n"
    assert config["User"] not in ("", "0", "root")
    found = in_shell(engine, engine.image(), "find / -xdev -name compat -o -name 'libcuda.so*'")
    assert [line for line in found.split() if "/opt/preflight" in line or "/cuda" in line] == []
    assert in_shell(engine, engine.image(), "stat -c %a /reports /data").split() == ["1777", "755"]


# -- how it runs ------------------------------------------------------------------------------


def test_it_passes_without_any_right_and_sees_its_limits(engine: Engine, tmp_path: Path):
    limits = ("--shm-size=96m", "--memory=2g", "--cpus=1.5")
    ran = gate(engine, tmp_path / "reports", *HOST, options=(*HARDENED, *limits))
    assert ran.code == 0, ran.shown()
    facts = ran.report["facts"]
    assert facts["cpu"]["quota"] == 1.5
    assert round(facts["memory"]["limit_gib"]) == 2
    assert round(facts["shm"]["size_gib"] * 1024) == 96
    assert ran.report["complete"]
    assert (ran.folder / "preflight.xml").exists()
    owner = (ran.folder / "preflight.json").stat()
    assert (owner.st_uid, owner.st_gid) == (4242, 4243)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((*QUICK,), 0, "PASS"),
        ((*QUICK, FAIL), 1, "FAIL"),
        (("rnu",), 2, "rnu"),
        ((*QUICK, "--set=shm.min_fre_gib=1"), 2, "min_fre_gib"),
        ((*HOST, "--deadline=1s"), 3, "UNDECIDED"),
    ],
    ids=["pass", "fail", "wrong command", "wrong key", "undecided"],
)
def test_the_exit_code_is_the_gates(engine: Engine, tmp_path: Path, arguments, code, said):
    ran = gate(engine, tmp_path / "reports", *arguments)
    assert ran.code == code, ran.shown()
    assert said in (ran.stderr if code == 2 else ran.verdict)
    if code == 2:
        assert len(ran.stderr.splitlines()) == 1
    assert ran.report["exit_code"] == code


def test_stopped_it_writes_its_reports_and_says_143(engine: Engine, tmp_path: Path):
    tmp_path.chmod(0o777)
    options = (*HARDENED, "--tmpfs=/tmp", "-v", f"{tmp_path}:/reports", engine.image())
    with detached(engine, *options, *HOST) as name:

        def said() -> str:
            logs = engine("logs", name)
            return logs.stdout + logs.stderr

        wait_until(said, lambda text: "dataloader" in text)
        pid = engine("inspect", "--format={{.State.Pid}}", name).stdout.strip()
        first = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
        assert engine("stop", "-t", "20", name).returncode == 0
        assert engine("wait", name).stdout.strip() == "143", said()
        assert first == "/opt/preflight/bin/dumb-init"
        report = json.loads((tmp_path / "preflight.json").read_text())
        assert (report["exit_code"], report["complete"]) == (143, True)
        assert said().startswith("INTERRUPTED node ")


def test_reports_that_cannot_be_written_lose_nothing_else(engine: Engine, tmp_path: Path):
    tmp_path.chmod(0o755)
    done = engine.run(
        *HARDENED, "--tmpfs=/tmp", "-v", f"{tmp_path}:/reports", engine.image(), *QUICK, FAIL
    )
    ran = Gated(done.returncode, done.stdout, done.stderr, tmp_path)
    assert ran.code == 1, ran.shown()
    assert ran.verdict.startswith("FAIL")
    (line,) = [line for line in ran.stderr.splitlines() if "reports are lost" in line]
    assert "/reports" in line and "ermission denied" in line
    assert list(tmp_path.iterdir()) == []


def test_with_nothing_to_write_to_it_comes_to_an_end(engine: Engine):
    no_tmp = ("--read-only-tmpfs=false",) if engine.name == "podman" else ()
    ran = engine.run(*HARDENED, *no_tmp, engine.image(), *HOST, timeout=90)
    assert ran.returncode in (1, 3), ran.stdout + ran.stderr
    assert ran.stdout.startswith(("FAIL", "UNDECIDED"))
    assert "reports are lost" in ran.stderr


# -- GPUs ------------------------------------------------------------------------------------


def test_gpus_asked_for_where_there_are_none(engine: Engine, tmp_path: Path):
    if shutil.which("nvidia-container-cli"):
        pytest.skip("this engine can give GPUs")
    ran = gate(
        engine, tmp_path / "reports", "run", "--no-color", "--check=driver_cuda",
        options=(*HARDENED, "--gpus=all"),
    )  # fmt: skip
    if ran.code in (125, 126):  # the engine itself refuses; older podmans ignore it
        assert "gpu" in ran.stderr.lower()
        return
    assert ran.code == 1, ran.shown()
    assert "driver_cuda: no NVIDIA driver in reach" in ran.stdout.replace("\n", " ")


@pytest.fixture
def gpus(engine: Engine, libraries: Libraries, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Options that give a container two H100s: the driver's stand-ins and device nodes."""
    node = tmp_path / "node"
    told = gpu_scenarios.TWO.install(node, libraries)
    shutil.rmtree(node / "machine/dev")  # those that the engine makes are looked at
    node.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    env = {**told, "STANDIN": "gpu", "PYTHONPATH": str(STANDINS), "STANDIN_MARK": "/tmp/mark"}
    env["LD_LIBRARY_PATH"] = str(node / "driver")
    given = [f"{name}={value}" for name, value in env.items() if value is not None]
    nodes = [f"/dev/{name}" for name in gpu_scenarios.TWO.device_nodes]
    mounts = (f"{node}:{node}", f"{STANDINS}:{STANDINS}:ro")
    if engine.name == "docker":  # 20.10 knows no CDI
        yield (
            *(f"--device=/dev/null:{name}" for name in nodes),
            *(f"--volume={mount}" for mount in mounts), *(f"--env={each}" for each in given),
        )  # fmt: skip
        return
    kind = f"preflight.example/{tmp_path.name.replace('_', '-')}"[:60]
    edits = {
        "env": given,
        "deviceNodes": [{"path": name, "hostPath": "/dev/null"} for name in nodes],
        "mounts": [
            {"hostPath": mount.split(":")[0], "containerPath": mount.split(":")[0],
             "options": ["rbind", "ro" if mount.endswith(":ro") else "rw"]}
            for mount in mounts
        ],
    }  # fmt: skip
    spec = {
        "cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": "all", "containerEdits": edits}],
    }  # fmt: skip
    CDI_FOLDER.mkdir(exist_ok=True)
    file = CDI_FOLDER / f"{kind.replace('/', '-')}.json"
    file.write_text(json.dumps(spec))
    try:
        yield (f"--device={kind}=all",)
    finally:
        file.unlink()


def test_a_container_that_is_given_gpus_sees_them_and_passes(engine: Engine, gpus, tmp_path: Path):
    ran = gate(
        engine, tmp_path / "reports", "run", "--no-color", "--check=pinned_copy",
        options=(*HARDENED, *gpus),
    )  # fmt: skip
    assert ran.code == 0, ran.shown()
    report = ran.report
    assert [gpu["name"] for gpu in report["facts"]["gpus"]] == [gpu_scenarios.H100["name"]] * 2
    outcomes = {result["check"]: result["outcome"] for result in report["results"]}
    assert outcomes == {"driver_cuda": "pass", "gpus": "pass", "pinned_copy": "pass"}
