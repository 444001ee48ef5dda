"""A Slurm cluster on this machine: two nodes that run jobs, and some that are only names.

Daemons, ports and folders are its own. Its prolog and health check are those in ci/slurm, copied
as an operator copies them, with settings.sh changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.command.running import wait_until
from tests.engines.engine import Missing, install

SCRIPTS = Path(__file__).parents[2] / "ci" / "slurm"
NODES = ("n1", "n2")
NAMES = ("n3", "n4")
"""Nodes without a slurmd: what carries a reason there counts, and nothing runs."""
HEALTH_CHECK_S = 3

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass
class Cluster:
    """The cluster, what its operator asks it, and what preflight finds on each node."""

    folder: Path
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.folder / "log"

    # -- what a test says ---------------------------------------------------------------------

    def on(self, node: str, environment: Mapping[str, str | None], thresholds: str) -> None:
        """What preflight sees when it runs on this node, and what it is told there."""
        lines = [f"export {name}='{value}'\n" if value is not None else f"unset {name}\n"
                 for name, value in environment.items()]  # fmt: skip
        self._own(node, "environment").write_text("".join(lines))
        self._own(node, "thresholds.yaml").write_text(thresholds)

    def report(self, node: str) -> Path:
        """Where the last result of a node is kept."""
        return self._own(node, "results") / "preflight.json"

    def submit(self, script: str | Path, *options: str, **environment: str) -> str:
        """Hand in a job; its id. Standard output goes to log/ID.out, by way of output()."""
        if isinstance(script, str):
            file = self.folder / "job.sh"
            file.write_text(f"#!/bin/bash\n{script}\n")
            script = file
        where = [f"--output={self.log}/%j.out", f"--chdir={self.folder}"]
        return self.ask("sbatch", "--parsable", *where, *options, str(script), **environment)

    def srun(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a step in an allocation of its own, to its end."""
        return subprocess.run(
            ["srun", *words], env=self._environment(), cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def output(self, job: str) -> str:
        """What a job has printed so far."""
        file = self.log / f"{job}.out"
        return file.read_text() if file.exists() else ""

    @contextlib.contextmanager
    def instead_of(self, name: str, line: str) -> Iterator[None]:
        """Have the prolog run this line of shell for a command; `$real` is the command."""
        self._program(name, f'real="{shutil.which(name)}"', line)
        try:
            yield
        finally:
            (self.folder / "bin" / name).unlink()

    def start_now(self, job: str) -> None:
        """Spare a requeued job the two minutes that Slurm lets it wait."""
        self.ask("scontrol", "update", f"JobId={job}", "StartTime=now")

    # -- what a test sees ---------------------------------------------------------------------

    def node(self, name: str) -> tuple[str, str]:
        """State and reason."""
        state, _, reason = self.ask("sinfo", "-a", "-h", "-N", "-n", name, "-o", "%T|%E").partition(
            "|"
        )
        return state.rstrip("*"), reason

    def job(self, job: str) -> dict[str, str]:
        """What scontrol knows of a job."""
        words = self.ask("scontrol", "-o", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def ended(self, job: str) -> str:
        """Wait for a job's end; its state."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        return str(wait_until(lambda: self.job(job)["JobState"], lambda state: state in over))

    def said(self) -> str:
        """The lines in the system's log."""
        file = self.folder / "syslog"
        return file.read_text() if file.exists() else ""

    def ask(self, *command: str, **environment: str) -> str:
        """A Slurm command's output."""
        done = subprocess.run(
            command, env=self._environment() | environment, capture_output=True, text=True,
            timeout=30,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    # -- its life -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything, and wait for both nodes."""
        for name in ("state", "log", "bin", *NODES):
            (self.folder / name).mkdir()
        for node in NODES:
            self._own(node, "spool").mkdir()
            self.on(node, {}, "extends: quick\n")
        self._install_scripts()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.folder.chmod(0o755)
        ports = _free_ports(1 + len(NODES) + len(NAMES))
        host = socket.gethostname().partition(".")[0]
        (self.folder / "slurm.conf").write_text(self._configuration(host, *ports))
        self._daemon(
            "munged", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.sock",
            f"--pid-file={self.folder}/munged.pid", f"--log-file={self.log}/munged.log",
            f"--seed-file={self.folder}/munge.seed",
        )  # fmt: skip
        configuration = str(self.folder / "slurm.conf")
        self._daemon("slurmctld", "-c", "-f", configuration)
        for node in NODES:
            self._daemon("slurmd", "-N", node, "-f", configuration)
        for node in NODES:
            wait_until(lambda node=node: self.node(node)[0], lambda state: state == "idle")

    def fresh(self) -> None:
        """As it was at the start."""
        self.ask("scancel", "--quiet", "--user=root")
        wait_until(lambda: self.ask("squeue", "-h"), lambda jobs: not jobs)
        (self.folder / "syslog").unlink(missing_ok=True)
        for node in NODES:
            shutil.rmtree(self._own(node, "results"), ignore_errors=True)
            self.on(node, {}, "extends: quick\n")
        for node in NAMES:
            self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=only a name")
        for node in NODES:
            if self.node(node)[1] != "none":
                self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
        for node in NODES:
            wait_until(lambda node=node: self.node(node), lambda seen: seen == ("idle", "none"))

    def stop(self) -> None:
        """End the daemons, each by its pid, and wait until they are gone."""
        for name in (*(f"slurmd.{node}" for node in NODES), "slurmctld", "munged"):
            file = self.folder / f"{name}.pid"
            if file.exists():
                _end(int(file.read_text()))

    def _own(self, node: str, name: str) -> Path:
        return self.folder / node / name

    def _install_scripts(self) -> None:
        folder = self.folder / "slurm"
        shutil.copytree(SCRIPTS, folder)
        settings = folder / "settings.sh"
        changed = settings.read_text()
        for before, after in (
            ("preflight=/opt/preflight/bin/preflight", f"preflight={self.folder}/bin/preflight"),
            ("thresholds=quick ", f"thresholds={self.folder}/$SLURMD_NODENAME/thresholds.yaml "),
            ("results=/var/lib/preflight ", f"results={self.folder}/$SLURMD_NODENAME/results "),
            ("PATH=/usr/local/sbin:", f"PATH={self.folder}/bin:/usr/local/sbin:"),
            ("# SLURM_CONF=/etc/slurm/slurm.conf", f"SLURM_CONF={self.folder}/slurm.conf"),
        ):
            assert before in changed, before
            changed = changed.replace(before, after)
        settings.write_text(changed)
        self._program(
            "preflight",
            f'. "{self.folder}/$SLURMD_NODENAME/environment"',
            f'exec "{sys.executable}" -m preflight "$@"',
        )
        self._program("logger", f'shift 3\necho "$*" >> "{self.folder}/syslog"')

    def _program(self, name: str, *lines: str) -> None:
        file = self.folder / "bin" / name
        file.write_text("\n".join(("#!/bin/sh", *lines, "")))
        file.chmod(0o755)

    def _configuration(self, host: str, control: int, *ports: int) -> str:
        here = self.folder
        lines = [
            "ClusterName=rig", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={control}",
            "SlurmUser=root", f"AuthInfo=socket={here}/munge.sock",
            f"StateSaveLocation={here}/state", f"SlurmdSpoolDir={here}/%n/spool",
            f"SlurmctldPidFile={here}/slurmctld.pid", f"SlurmdPidFile={here}/slurmd.%n.pid",
            f"SlurmctldLogFile={here}/log/slurmctld.log", f"SlurmdLogFile={here}/log/%n.log",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
            "JobAcctGatherType=jobacct_gather/none", "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core", "ReturnToService=2", *self._shipped_configuration(),
        ]  # fmt: skip
        for node, port in zip((*NODES, *NAMES), ports, strict=True):
            state = "UNKNOWN" if node in NODES else "DOWN"
            lines.append(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
                         f" CPUs=2 RealMemory=1000 Weight={node[1:]} State={state}")  # fmt: skip
        lines.append("PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=NO")
        return "\n".join((*lines, ""))

    def _shipped_configuration(self) -> list[str]:
        """The lines of the README, with this cluster's folder and a shorter interval."""
        text = (SCRIPTS / "README.md").read_text()
        lines = re.findall(r"^    ((?:Prolog|BatchStart|Scheduler|HealthCheck)\w*=.*)$", text, re.M)
        lines.remove("HealthCheckInterval=300")
        whole = "\n".join((*lines, f"HealthCheckInterval={HEALTH_CHECK_S}"))
        whole = whole.replace("/etc/slurm/preflight/", f"{self.folder}/slurm/")
        found = "SchedulerParameters=nohold_on_prolog_fail"
        assert found in whole
        return whole.replace(found, f"{found},sched_interval=1").splitlines()

    def _daemon(self, name: str, *arguments: str) -> None:
        program = shutil.which(name, path=f"{os.environ['PATH']}:{_SBIN}")
        done = subprocess.run(
            [str(program), *arguments], env=self._environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=(self.log / f"{name}.err").open("wb"), timeout=30,
        )  # fmt: skip
        assert done.returncode == 0, (self.log / f"{name}.err").read_text()

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.folder / "slurm.conf")}


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests of a file."""
    try:
        install("slurm")
    except Missing as why:
        pytest.skip(str(why))
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    """The cluster, as it was at the start."""
    running_cluster.fresh()
    return running_cluster


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    try:
        wait_until(lambda: _runs(pid), lambda runs: not runs, 10)
    except AssertionError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise


def _runs(pid: int) -> bool:
    """Whether it is there and no zombie, which a container's first process may never collect."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
