from __future__ import annotations

import pytest

from preflight.machine.identity import node
from tests.fakes import FixtureRoot


@pytest.mark.parametrize(
    ("environ", "name", "name_from"),
    [
        ({"NODE_NAME": "gpu-b17", "SLURMD_NODENAME": "n3"}, "gpu-b17", "NODE_NAME"),
        ({"NODE_NAME": " ", "SLURMD_NODENAME": "n3"}, "n3", "SLURMD_NODENAME"),
        ({}, "preflight-x7k2p", "host name"),
    ],
)
def test_node(environ: dict[str, str], name: str, name_from: str) -> None:
    seen = node(FixtureRoot.named("kubernetes_v2_private"), environ)
    assert (seen.name, seen.name_from, seen.hostname) == (name, name_from, "preflight-x7k2p")
