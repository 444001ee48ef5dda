"""Container engines of our own: podman with its own storage, a docker daemon on its own socket.

Both start from one folder, build the real Dockerfile on the stand-in base, and leave nothing.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
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
    if _installed(packages):
        return
    with contextlib.suppress(OSError):
        _apt("update")
        more = _NEWER_DEBIAN.get(engine, "").split()
        packages += [name for name in more if _known(name)]
        _apt("install", "-y", "--no-install-recommends", *packages)
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
    """A docker daemon on a socket of its own."""

    process: subprocess.Popen[bytes]
    engine: Engine
    folder: Path

    def end(self) -> None:
        """Stop it and what it started."""
        left = self.engine("ps", "-aq").stdout.split()
        if left:
            self.engine("rm", "-f", *left)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _remove(self.folder)


def docker(folder: Path) -> Daemon:
    """Start a daemon without bridge and firewall rules, which belong to the machine."""
    install("docker")
    socket = f"unix://{folder}/docker.sock"
    with (folder / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "dockerd", "-H", socket, "--data-root", str(folder / "data"),
                "--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid"),
                "--iptables=false", "--bridge=none",
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    environment = {**os.environ, "DOCKER_HOST": socket, "DOCKER_BUILDKIT": "0"}
    daemon = Daemon(process, Engine("docker", ("docker",), environment), folder)
    try:
        _wait(lambda: daemon.engine("version").returncode == 0 or process.poll() is not None)
    except BaseException:
        daemon.end()
        raise
    if process.poll() is not None:
        raise Missing(f"dockerd does not start: {(folder / 'dockerd.log').read_text()[-500:]}")
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
    subprocess.run(["apt-get", "-qq", *arguments], env=environment, capture_output=True)


def _remove(folder: Path) -> None:
    """Take off what is still mounted below, innermost first, and remove it."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)
