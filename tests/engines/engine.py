"""Container engines of our own: podman with its own storage, a docker daemon on its own socket.

Both start from one folder, build the real Dockerfile on the stand-in base, and leave nothing.
Packages, also Slurm's, are installed here, by one test process at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.engines import standin_base

REPOSITORY = Path(__file__).parents[2]
BASE = "localhost/torch-standin:1"
IMAGE = "localhost/preflight:test"
PACKAGES = {
    "podman": "podman runc catatonit netavark aardvark-dns uidmap iptables nftables busybox-static",
    "docker": "docker.io iptables busybox-static",
    "compose": "docker-compose",
    "slurm": "slurm-wlm munge",
}
_NEWER_DEBIAN = {"docker": "docker-cli docker-buildx"}  # where docker.io is the daemon alone
_BUILD_LIMIT_S = 300.0

Done = subprocess.CompletedProcess[str]


class Missing(Exception):
    """Why an engine cannot be had here."""


@dataclass
class Engine:
    """One engine; calling it runs its command."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    built: set[str] = field(default_factory=set)

    def __call__(self, *arguments: str, timeout: float = 120.0, stdin: str | None = None) -> Done:
        """Run its command; never raises for an exit code."""
        return subprocess.run(
            [*self.command, *arguments], env=self.environment, input=stdin, text=True,
            stdin=subprocess.DEVNULL if stdin is None else None, capture_output=True,
            timeout=timeout,
        )  # fmt: skip

    def run(self, *arguments: str, timeout: float = 120.0) -> Done:
        """`run` of a container that is gone afterwards, also when it takes too long."""
        name = f"pf-{uuid.uuid4().hex[:12]}"
        try:
            return self("run", "--rm", "--name", name, *arguments, timeout=timeout)
        except subprocess.TimeoutExpired:
            self("rm", "-f", name)
            raise

    def import_base(self, root: Path) -> None:
        """Make BASE out of a root file system."""
        changes = [
            f"--change=ENV {name}={value}" for name, value in standin_base.ENVIRONMENT.items()
        ]
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            done = subprocess.run(
                [*self.command, "import", *changes, "--change=WORKDIR /workspace", "-", BASE],
                env=self.environment, stdin=tar.stdout, capture_output=True, text=True,
                timeout=_BUILD_LIMIT_S,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def build(self, tag: str, context: Path, *arguments: str) -> str:
        """Build an image once, and say its name."""
        if tag not in self.built:
            # Without a bridge only the host's network reaches the package index.
            done = self(
                "build", "--network", "host", *arguments, "-t", tag, str(context),
                timeout=_BUILD_LIMIT_S,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            self.built.add(tag)
        return tag

    def image(self) -> str:
        """preflight's image, from the shipped Dockerfile."""
        return self.build(IMAGE, REPOSITORY, "--build-arg", f"BASE_IMAGE={BASE}")


def install(engine: str) -> None:
    """Have an engine's packages; raises Missing."""
    if os.geteuid() != 0:
        raise Missing(f"{engine} needs root here")
    packages = PACKAGES[engine].split()
    # Beside us another worker may want others; apt-get refuses where it is not alone.
    with (Path(tempfile.gettempdir()) / "preflight-engine-test.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _installed(packages):
            return
        with contextlib.suppress(OSError):
            _apt("update")
            more = [name for name in _NEWER_DEBIAN.get(engine, "").split() if _known(name)]
            _apt("install", "-y", "--no-install-recommends", *packages, *more)
    if not _installed(packages):
        raise Missing(f"could not be installed: {' '.join(packages)}")


def podman(folder: Path) -> Engine:
    """Podman with a storage in `folder`, by runc: crun refuses mixed cgroup hierarchies."""
    install("podman")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]\n'
        '[engine]\nruntime = "runc"\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    environment = {
        **os.environ,
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "PODMAN_IGNORE_CGROUPSV1_WARNING": "1",
    }
    return Engine("podman", ("podman",), environment)


def end_podman(engine: Engine, folder: Path) -> None:
    """Remove every container, and the storage."""
    engine("pod", "rm", "--all", "--force", "--time", "0")
    engine("rm", "--all", "--force", "--time", "0")
    _remove(folder)


@dataclass
class Daemon:
    """A docker daemon on a socket of its own, without the machine's bridge and firewall rules."""

    folder: Path
    engine: Engine = field(init=False)
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        environment = {**os.environ, "DOCKER_HOST": self._socket, "DOCKER_BUILDKIT": "0"}
        self.engine = Engine("docker", ("docker",), environment)

    @property
    def _socket(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def start(self, path: str = os.environ["PATH"]) -> None:
        """Start it, with what it finds on `path`; raises Missing."""
        with (self.folder / "dockerd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    # An interrupted test process may not come to its fixtures' ends.
                    "setpriv", "--pdeathsig", "TERM", "dockerd", "-H", self._socket,
                    "--data-root", str(self.folder / "data"),
                    "--exec-root", str(self.folder / "exec"), "--pidfile", str(self.folder / "pid"),
                    "--iptables=false", "--bridge=none",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": path},
            )  # fmt: skip
        try:
            _wait(lambda: self.engine("version").returncode == 0 or self._ended())
        except BaseException:
            self.stop()
            raise
        if self._ended():
            log_text = (self.folder / "dockerd.log").read_text()
            raise Missing(f"dockerd does not start: {log_text[-500:]}")

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """Stop it and what it started; images stay."""
        left = self.engine("ps", "-aq").stdout.split()
        if left:
            self.engine("rm", "-f", *left)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @contextlib.contextmanager
    def with_programs(self, folder: Path) -> Iterator[None]:
        """Started anew with a folder first on its PATH, for a while."""
        self.stop()
        try:
            self.start(f"{folder}:{os.environ['PATH']}")
            yield
        finally:
            self.stop()
            self.start()

    def end(self) -> None:
        """Stop it, and leave nothing."""
        self.stop()
        _remove(self.folder)


def docker(folder: Path) -> Daemon:
    """Start a daemon in `folder`; raises Missing."""
    install("docker")
    daemon = Daemon(folder)
    daemon.start()
    return daemon


def _wait(good: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < deadline, f"not in {seconds:g} s"
        time.sleep(0.1)


def _installed(packages: list[str]) -> bool:
    try:
        return subprocess.run(["dpkg", "-s", *packages], capture_output=True).returncode == 0
    except OSError:
        return False


def _known(package: str) -> bool:
    return subprocess.run(["apt-cache", "show", package], capture_output=True).returncode == 0


def _apt(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", *arguments]
    subprocess.run(command, env=environment, capture_output=True)


def _remove(folder: Path) -> None:
    """Take off what is still mounted below, innermost first, and remove it."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)
