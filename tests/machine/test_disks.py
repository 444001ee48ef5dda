"""The model that a disk gives itself, from a mount's source."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.machine.disks import disk_model
from preflight.machine.root import Root


@pytest.fixture
def machine(tmp_path: Path) -> Root:
    """A disk with a partition, as sysfs lays them out, and a loop device without a model."""
    disk = tmp_path / "sys/devices/pci0000:00/nvme/nvme0/nvme0n1"
    (disk / "nvme0n1p1").mkdir(parents=True)
    (disk / "device").mkdir()
    (disk / "device" / "model").write_text("Micron_7450_MTFDKCC3T8TFR               \n")
    loop = tmp_path / "sys/devices/virtual/block/loop0"
    loop.mkdir(parents=True)
    links = tmp_path / "sys/class/block"
    links.mkdir(parents=True)
    for name, target in (
        ("nvme0n1", disk), ("nvme0n1p1", disk / "nvme0n1p1"), ("loop0", loop),
    ):  # fmt: skip
        (links / name).symlink_to(target)
    return Root(str(tmp_path))


@pytest.mark.parametrize(
    ("source", "model"),
    [
        ("/dev/nvme0n1", "Micron_7450_MTFDKCC3T8TFR"),
        ("/dev/nvme0n1p1", "Micron_7450_MTFDKCC3T8TFR"),
        ("/dev/loop0", None),
        ("/dev/sdz", None),
        ("/dev/mapper/vg-data", None),
        ("server:/export/nvme0n1", None),
        ("tmpfs", None),
        ("", None),
    ],
)
def test_the_model_of_a_disk_and_of_its_partitions(
    machine: Root, source: str, model: str | None
) -> None:
    assert disk_model(machine, source) == model
