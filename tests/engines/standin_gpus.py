"""GPUs for `docker run --gpus`: stand-ins for NVIDIA's driver, and for the hook that mounts it.

The hook is named as NVIDIA's, which is by what docker knows that it can give GPUs. Like that one it
finds the container by its state, enters its mounts and puts libraries and device nodes there.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.command import gpu_scenarios
from tests.command.running import STANDINS
from tests.engines.engine import BASE, Engine
from tests.gpu_standins.building import Libraries

_HOOK = r"""#!{python} -IS
import json, os, subprocess, sys

state = json.load(sys.stdin)
with open(os.path.join(state["bundle"], "config.json")) as file:
    config = json.load(file)
root = config["root"]["path"]
assert "NVIDIA_VISIBLE_DEVICES=all" in config["process"]["env"], config["process"]["env"]

def mount(source, target, folder=False):
    there = root + target
    make = 'mkdir -p "$1"' if folder else 'mkdir -p "$(dirname "$1")" && touch "$1"'
    subprocess.run(
        ["nsenter", "--target", str(state["pid"]), "--mount", "--", "sh", "-ec",
         make + ' && mount --bind "$2" "$1"', "sh", there, source],
        check=True,
    )

for name in os.listdir("{driver}"):
    mount(os.path.realpath("{driver}/" + name), "/usr/lib/" + name)
for name in {devices}:
    mount("/dev/null", "/dev/" + name)
mount("{node}", "{node}", folder=True)
"""


@dataclass(frozen=True)
class Gpus:
    """A machine with two H100s; `programs` holds the hook."""

    folder: Path
    libraries: Libraries

    @property
    def programs(self) -> Path:
        """A folder for the daemon's PATH."""
        return self.folder / "hook"

    def put_hook(self) -> None:
        """Write the machine and its hook."""
        gpu_scenarios.TWO.install(self._node, self.libraries)
        shutil.rmtree(self._node / "machine/dev")  # those that the hook mounts are looked at
        self._node.chmod(0o777)
        self.programs.mkdir()
        hook = self.programs / "nvidia-container-runtime-hook"
        words = {
            "{python}": sys.executable, "{driver}": str(self._node / "driver"),
            "{node}": str(self._node), "{devices}": repr(gpu_scenarios.TWO.device_nodes),
        }  # fmt: skip
        text = _HOOK
        for name, value in words.items():
            text = text.replace(name, value)
        hook.write_text(text)
        hook.chmod(0o755)

    def put_base(self, docker: Engine, names: list[str]) -> None:
        """The stand-in base with a torch that sees these GPUs, under other names too."""
        context = self.folder / "base"
        shutil.copytree(STANDINS, context / "standins")
        (context / "Dockerfile").write_text(
            f"FROM {BASE}\nCOPY standins /standins\n"
            f"ENV STANDIN=gpu PYTHONPATH=/standins STANDIN_GPUS={self._node}/scenario\n"
        )
        for name in names:
            docker.build(name, context)

    @property
    def _node(self) -> Path:
        return self.folder / "node"
