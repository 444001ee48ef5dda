from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from preflight.machine.mounts import (
    FileSystem,
    file_system_of,
    mount_of,
    parse_mountinfo,
    read_mounts,
    read_shm,
    writable_at,
)
from preflight.machine.root import Root
from tests.fakes import FixtureRoot, write_machine

ROOT = "26 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro\n"


def on(text: str, path: str) -> str | None:
    mount = mount_of(parse_mountinfo(text), path)
    return mount and mount.source


def test_a_line_with_any_number_of_optional_fields() -> None:
    text = (
        "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n"
        "37 35 98:0 /a /b ro,noatime - tmpfs  rw\n"
    )
    first, second = parse_mountinfo(text)
    assert (first.root, first.point, first.fs_type, first.source) == (
        "/mnt1", "/mnt2", "ext3", "/dev/root",
    )  # fmt: skip
    assert first.super_options == {"rw", "errors=continue"}
    assert (second.source, second.options) == ("", {"ro", "noatime"})


@pytest.mark.parametrize("text", ["", None, "36 35\n", "36 35 0:1 / /a rw - ext4\n", "no - sense"])
def test_lines_that_are_cut_off_are_left_out(text: str | None) -> None:
    assert parse_mountinfo(text) == []


def test_octal_escapes() -> None:
    text = r"36 26 0:1 / /my\040data\011\134x rw - ext4 /dev/a\040b rw"
    (mount,) = parse_mountinfo(text)
    assert (mount.point, mount.source) == ("/my data\t\\x", "/dev/a b")


@pytest.mark.parametrize(
    ("options", "super_options", "read_only"),
    [("rw", "rw", False), ("ro,noatime", "rw", True), ("rw", "ro", True), ("rw", "rw,prof", False)],
)
def test_read_only(options: str, super_options: str, read_only: bool) -> None:
    (mount,) = parse_mountinfo(f"36 26 0:1 / /a {options} - ext4 x {super_options}")
    assert mount.read_only is read_only


def test_the_nearest_mount_and_no_mere_prefix() -> None:
    text = ROOT + "30 26 0:1 / /data rw - xfs d rw\n31 30 0:2 / /data/in rw - nfs4 n rw\n"
    assert on(text, "/data/in/x") == "n"
    assert on(text, "/data/inner") == "d"
    assert on(text, "/database") == "/dev/sda2"
    assert on(text, "/data") == "d"


def test_a_later_mount_hides_what_lies_below_it() -> None:
    # /data/in was mounted first; then another file system was put over /data.
    text = (
        ROOT + "30 26 0:1 / /data rw - xfs old rw\n31 30 0:2 / /data/in rw - nfs4 hidden rw\n"
        "32 30 0:3 / /data rw - xfs new rw\n"
    )
    assert on(text, "/data/in/x") == "new"


def test_a_root_that_is_no_mount_and_a_table_that_is_garbage() -> None:
    assert on("30 26 0:1 / /data rw - xfs d rw\n", "/data/x") == "d"
    assert on("30 26 0:1 / /data rw - xfs d rw\n", "/home") is None
    assert on("1 1 0:1 / / rw - rootfs r rw\n", "/x") == "r"
    assert on("1 2 0:1 / / rw - a a rw\n2 1 0:1 / / rw - b b rw\n", "/x") is None


def test_mounts_of_a_login_session() -> None:
    mounts = read_mounts(FixtureRoot.named("bare_metal"))
    scratch, home = mount_of(mounts, "/scratch one/x"), mount_of(mounts, "/home/me")
    assert scratch is not None and scratch.fs_type == "xfs" and not scratch.read_only
    assert home is not None and home.fs_type == "nfs4" and home.read_only


def test_shm_that_is_not_mounted_is_none(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {"/dev/shm/file": "x"})
    assert read_shm(root, parse_mountinfo(ROOT)) is None


def test_shm_with_a_hidden_mount_table_is_what_the_file_system_says(tmp_path: Path) -> None:
    shm = read_shm(write_machine(tmp_path, {"/dev/shm/file": "x" * 5000}), [])
    assert shm is not None
    assert (shm.fs_type, shm.read_only, shm.stale_files) == ("unknown", False, ("/dev/shm/file",))
    assert shm.size_gib > 0


def test_a_read_only_shm(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {"/dev/shm/file": ""})
    shm = read_shm(root, parse_mountinfo(ROOT + "30 26 0:1 / /dev/shm ro - tmpfs shm rw\n"))
    assert shm is not None and shm.read_only


def test_the_five_largest_stale_files_one_folder_deep(tmp_path: Path) -> None:
    sizes = {f"f{n}": "x" * (n * 10_000) for n in range(1, 7)}
    files = {f"/dev/shm/{name}": text for name, text in sizes.items()}
    files |= {"/dev/shm/job/large": "x" * 90_000, "/dev/shm/job/deep/huge": "x" * 200_000}
    shm = read_shm(write_machine(tmp_path, files), [])
    assert shm is not None
    assert shm.stale_files == tuple(
        f"/dev/shm/{name}" for name in ("job/large", "f6", "f5", "f4", "f3")
    )
    assert shm.stale_gib == pytest.approx(300_000 / 2**30, abs=2e-4)


@pytest.mark.parametrize(
    ("line", "may", "point"),
    [
        ("30 26 0:1 / /data rw - nfs4 n rw", True, "/data"),
        ("30 26 0:1 / /data rw - nfs4 n rw", False, None),  # its mode keeps us out
        ("30 26 0:1 / /data ro - nfs4 n rw", True, None),
        ("30 26 0:1 / /data rw - nfs4 n ro", True, None),
        ("30 26 0:1 / /other rw - nfs4 n rw", True, None),  # in the image itself
    ],
)
def test_where_data_may_be_written_to(
    tmp_path: Path, line: str, may: bool, point: str | None
) -> None:
    class Machine(Root):
        def writable(self, name: str) -> bool:
            return may and name == "/data/train"

    write_machine(tmp_path, {"/proc/self/mountinfo": ROOT + line})
    assert writable_at(Machine(str(tmp_path)), "/data/train") == point


def test_a_look_at_a_path_does_not_pay_for_pydantic() -> None:
    code = "import sys, preflight.machine.mounts\nassert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("fs_type", "source", "kind"),
    [
        ("ext4", "/dev/nvme0n1p1", "local"),
        ("xfs", "/dev/mapper/data", "local"),
        ("btrfs", "/dev/sdb", "local"),
        ("zfs", "tank/data", "local"),
        ("nfs4", "server:/export", "network"),
        ("cifs", "//server/share", "network"),
        ("ceph", "10.0.0.1:6789:/", "network"),
        ("lustre", "10.0.0.1@tcp:/scratch", "network"),
        ("beegfs", "beegfs_nodev", "network"),
        ("gpfs", "gpfs0", "network"),
        ("9p", "share", "network"),
        ("ext4", "/dev/rbd0", "network"),
        ("fuse.s3fs", "s3fs", "network"),
        ("fuse.gcsfuse", "bucket", "network"),
        ("fuse.juicefs", "JuiceFS:vol", "network"),
        ("fuse.JuiceFS", "JuiceFS:vol", "network"),
        ("fuse.sshfs", "host:/data", "network"),
        ("fuse", "Passthrough", "unknown"),
        ("fuse.bindfs", "/data", "unknown"),
        ("fuseblk", "/dev/sda1", "unknown"),
        ("virtiofs", "share", "unknown"),
        ("somethingfs", "none", "unknown"),
        ("tmpfs", "tmpfs", "memory"),
        ("ramfs", "none", "memory"),
    ],
)
def test_where_the_bytes_of_a_file_system_come_from(fs_type: str, source: str, kind: str) -> None:
    mounts = parse_mountinfo(ROOT + f"30 26 0:1 / /data rw - {fs_type} {source} rw\n")
    found = file_system_of(mounts, "/data/train")
    assert found == FileSystem("/data", fs_type, source, kind)  # type: ignore[arg-type]


def overlay(options: str) -> str:
    return f"30 26 0:1 / /data rw - overlay overlay rw,{options}\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (ROOT + overlay("lowerdir=/a:/b,upperdir=/c,workdir=/w"), "local"),
        (ROOT + overlay("lowerdir=/a,upperdir=/nfs/c,workdir=/w"), "unknown"),
        (ROOT + overlay("lowerdir=/nfs/a:/nfs/b"), "network"),
        (ROOT + overlay("lowerdir=l/ABC:l/DEF"), "unknown"),  # relative to nobody knows what
        (ROOT + overlay("volatile"), "unknown"),
        # As a container sees it: the layers' paths are the host's.
        (
            "26 1 0:5 / / rw - overlay overlay rw,lowerdir=/var/lib/a,upperdir=/var/lib/b\n"
            + overlay("lowerdir=/var/lib/a,upperdir=/var/lib/b"),
            "unknown",
        ),
    ],
)
def test_an_overlay_is_what_its_layers_are(text: str, kind: str) -> None:
    mounts = parse_mountinfo(text + "31 26 0:2 / /nfs rw - nfs4 server:/x rw\n")
    found = file_system_of(mounts, "/data/train")
    assert found is not None and (found.fs_type, found.kind) == ("overlay", kind)


def test_a_hidden_mount_table_says_nothing() -> None:
    assert file_system_of([], "/data") is None
