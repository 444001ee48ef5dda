from __future__ import annotations

from pathlib import Path

from preflight.machine.numa import cpu_nodes, cpus_by_node
from preflight.machine.root import Root
from tests.fakes import write_machine

NODES = "/sys/devices/system/node"


def test_nodes_with_and_without_cpus(tmp_path: Path) -> None:
    root = write_machine(
        tmp_path,
        {
            f"{NODES}/node0/cpulist": "0-1,4-5\n",
            f"{NODES}/node1/cpulist": "2-3\n",
            f"{NODES}/node2/cpulist": "\n",
            f"{NODES}/online": "0-2\n",
            f"{NODES}/node_x": "",
        },
    )
    assert cpus_by_node(root) == {0: {0, 1, 4, 5}, 1: {2, 3}, 2: set()}
    assert cpu_nodes(root) == 2


def test_a_kernel_without_numa_is_one_node(tmp_path: Path) -> None:
    assert cpus_by_node(Root(str(tmp_path))) == {}
    assert cpu_nodes(Root(str(tmp_path))) == 1
