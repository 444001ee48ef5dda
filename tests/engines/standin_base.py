"""A root file system that stands in for pytorch/pytorch: this machine's Python with its torch.

As there, Python is in /opt/conda, torch and numpy lie in its site-packages, and a shell is there.
It has no Pillow. Files are hard links where they can be; nothing of the machine is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

HOME = "opt/conda"
PATH = ":".join(f"/{place}" for place in (f"{HOME}/bin", "usr/local/bin", "usr/bin", "bin"))
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
ENVIRONMENT = {
    "PATH": PATH,
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "PIP_CERT": CERTIFICATES,
}
_PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_LEFT_OUT = re.compile(r"^torch/((include|test|share)/|bin/.*test)|__pycache__")
_LIBRARY = re.compile(r"=> (/(?:usr/)?lib\S+)|^\s*(/lib64/\S+)", re.MULTILINE)


def make(root: Path) -> None:
    """Write it into a folder that is not there yet."""
    for place in ("bin", "usr/bin", "etc/ssl/certs", "proc", "sys", "dev", "run", "root", "lib64"):
        (root / place).mkdir(parents=True)
    for place in ("tmp", "var/tmp"):
        (root / place).mkdir(parents=True)
        (root / place).chmod(0o1777)
    _put_shell(root)
    _put_python(root)
    _put_packages(root / HOME / "lib" / _PYTHON / "site-packages", ("torch", "numpy", "pip"))
    _put_libraries(root)
    (root / "etc/passwd").write_text("root:x:0:0:::/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    bundle = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().openssl_cafile
    with contextlib.suppress(OSError):
        shutil.copy(
            CERTIFICATES if os.path.exists(CERTIFICATES) else bundle, root / CERTIFICATES[1:]
        )


@contextlib.contextmanager
def externally_managed(root: Path) -> Iterator[None]:
    """Mark its Python, for a while, as one that pip may not install into (PEP 668)."""
    mark = root / HOME / "lib" / _PYTHON / "EXTERNALLY-MANAGED"
    mark.write_text("[externally-managed]\nError=the distribution's packages are its own\n")
    try:
        yield
    finally:
        mark.unlink()


def _put_shell(root: Path) -> None:
    for name in ("bash", "busybox"):
        found = shutil.which(name)
        assert found, f"{name} is not there"
        shutil.copy(os.path.realpath(found), root / "bin" / name)
    for name in _output("busybox", "--list").split():
        if not (root / "bin" / name).exists():
            (root / "bin" / name).symlink_to("busybox")
    (root / "usr/bin/env").symlink_to("../../bin/env")


def _put_python(root: Path) -> None:
    theirs, ours = Path(sys.base_prefix), root / HOME
    (ours / "bin").mkdir(parents=True)
    shutil.copy(theirs / "bin" / _PYTHON, ours / "bin")
    for name in ("python3", "python"):
        (ours / "bin" / name).symlink_to(_PYTHON)
    left_out = shutil.ignore_patterns(
        "test", "site-packages", "dist-packages", "idlelib", "tkinter", "lib2to3", "__pycache__",
        "config-3*", "_tkinter*",
    )  # fmt: skip
    shutil.copytree(theirs / "lib" / _PYTHON, ours / "lib" / _PYTHON, ignore=left_out)
    for library in (theirs / "lib").glob("libpython3*.so*"):
        shutil.copy(library, ours / "lib")
    (root / "etc/ld.so.conf").write_text(f"/{HOME}/lib\n")  # its own RUNPATH names the old place
    pip = "from pip._internal.cli.main import main\nraise SystemExit(main())\n"
    (ours / "bin/pip").write_text(f"#!/{HOME}/bin/python3\n{pip}")
    (ours / "bin/pip").chmod(0o755)


def _put_packages(site: Path, names: Iterable[str]) -> None:
    for name in _with_what_they_need(names):
        found = distribution(name)
        for file in found.files or ():
            if ".." in file.parts or _LEFT_OUT.search(str(file)):
                continue
            source, target = Path(str(found.locate_file(file))), site / file
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(source, target)
                except OSError:
                    shutil.copy(source, target)


def _with_what_they_need(names: Iterable[str]) -> Iterator[str]:
    open_, seen = list(names), set[str]()
    while open_:
        name = open_.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:  # for another system
            continue
        yield name
        open_ += [re.split(r"[^\w.-]", need)[0] for need in needs if "extra ==" not in need]


def _put_libraries(root: Path) -> None:
    files = (file for file in root.rglob("*") if file.is_file() and not file.is_symlink())
    binaries = [str(file) for file in files if ".so" in file.name or file.parent.name == "bin"]
    env = {**os.environ, "LD_LIBRARY_PATH": str(root / HOME / "lib")}
    told = subprocess.run(["ldd", *binaries], env=env, capture_output=True, text=True).stdout
    for name in {match[1] or match[2] for match in _LIBRARY.finditer(told)}:
        target = root / name[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(name), target)
    subprocess.run(["ldconfig", "-r", str(root)], capture_output=True)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
