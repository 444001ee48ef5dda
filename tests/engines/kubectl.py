"""`apply -k` and `logs` of kubectl, on a machine of kube.py instead of a cluster.

Started by a script of that name on PATH; $KUBE_NODE is the machine's folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.ci.kustomize import build
from tests.engines.engine import Engine
from tests.engines.kube import Node


def main(arguments: list[str]) -> int:
    """What the real one answers with; like it, `apply` does not tell how a Pod ends."""
    node = Node(Engine("podman", ("podman",), dict(os.environ)), Path(os.environ["KUBE_NODE"]))
    match arguments:
        case ["apply", "-n", _, "-k", folder]:
            node.play(build(Path(folder)))
            return 0
        case ["logs", "-n", _, job, "-c", container]:
            name = job.removeprefix("job/")
            pod = [each for each in node.played() if each.rpartition("-")[0] == name][-1]
            done = node.podman("logs", f"{pod}-{container}")
            sys.stdout.write(done.stdout)
            sys.stderr.write(done.stderr)
            return done.returncode
    sys.stderr.write(f"the stand-in for kubectl does not know {arguments}\n")
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
