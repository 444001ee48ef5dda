"""What a block device says of itself under /sys: its model."""

from __future__ import annotations

from preflight.machine.root import Root


def disk_model(root: Root, source: str) -> str | None:
    """The model of the disk behind a mount's source, such as /dev/nvme0n1p1.

    None for what has none: a virtio disk, a loop device, a RAID, an LVM volume, no device at all.
    """
    folder, _, name = source.rpartition("/")
    if folder != "/dev" or not name:
        return None
    # A partition lies in its disk's folder; the link leads there, so that .. is the disk.
    for place in (f"/sys/class/block/{name}", f"/sys/class/block/{name}/.."):
        model = (root.read_text(f"{place}/device/model") or "").strip()
        if model:
            return model
    return None
