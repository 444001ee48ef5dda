import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.data import image_folder
from preflight.data.image_folder import FileSource, fetch, list_images, look


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def names(listing, root):
    return {os.path.relpath(path, root) for path in listing.paths}


def test_finds_images_at_every_depth_whatever_the_case(tmp_path):
    wanted = ["a.jpg", "b.JPEG", "c/d.Png", "c/e/f.webp", "c/e/g.tiff", "h.bmp", "i.ppm", "j.TIF"]
    others = ["labels.csv", "c/readme", "c/x.jpg.txt"]
    touch(*(tmp_path / name for name in wanted + others))
    listing = list_images(str(tmp_path))
    assert names(listing, tmp_path) == set(wanted)
    assert listing.complete
    assert listing.other_files == 3
    assert listing.unreadable_folders == 0


def test_with_codec_raw_every_file_is_a_sample(tmp_path):
    touch(tmp_path / "a.bin", tmp_path / "b" / "c.npy")
    assert names(list_images(str(tmp_path), codec="raw"), tmp_path) == {"a.bin", "b/c.npy"}
    assert look(str(tmp_path), "raw") == "ok"
    assert look(str(tmp_path)) == "no_image"


def test_a_cut_listing_spans_the_class_folders(tmp_path):
    for number in range(200):
        folder = tmp_path / f"class{number:03}"
        folder.mkdir()
        for image in range(100):
            os.close(os.open(folder / f"{image:03}.jpg", os.O_CREAT))
    calls = []
    listing = list_images(str(tmp_path), max_files=1000, on_progress=calls.append)
    assert len(listing.paths) == len(set(listing.paths)) == 1000
    assert not listing.complete
    per_class = [sum(f"class{n:03}" in path for path in listing.paths) for n in range(200)]
    assert per_class == [5] * 200
    assert len(calls) >= 200
    assert calls == sorted(calls)
    assert calls[-1] < 3000, "a cut listing must not read the rest of the folders"


def test_what_small_folders_leave_over_goes_to_large_ones(tmp_path):
    touch(*(tmp_path / f"small{n}" / "one.jpg" for n in range(9)))
    touch(*(tmp_path / "large" / f"{n}.jpg" for n in range(100)))
    listing = list_images(str(tmp_path), max_files=50)
    assert len(listing.paths) == len(set(listing.paths)) == 50
    assert sum(Path(path).name == "one.jpg" for path in listing.paths) == 9
    assert not listing.complete
    assert list_images(str(tmp_path), max_files=109).complete


def test_topping_up_keeps_to_the_limit_of_entries(tmp_path, monkeypatch):
    touch(tmp_path / "a" / "one.jpg", *(tmp_path / "b" / f"{n}.jpg" for n in range(300)))
    assert len(list_images(str(tmp_path), max_files=150).paths) == 150
    monkeypatch.setattr(image_folder, "MAX_ENTRIES", 200)
    listing = list_images(str(tmp_path), max_files=150)
    read_at_first = 2 + 1 + 76
    assert len(listing.paths) == 1 + (200 - read_at_first)
    assert not listing.complete


def test_flat_images_beside_a_tree_do_not_crowd_it_out(tmp_path):
    touch(*(tmp_path / "val" / f"{n}.jpg" for n in range(100)))
    touch(*(tmp_path / "train" / f"class{n % 10}" / f"{n}.jpg" for n in range(100)))
    listing = list_images(str(tmp_path), max_files=60)
    assert sum("/train/" in path for path in listing.paths) == 30


def test_reads_progress_while_one_folder_is_large(tmp_path):
    touch(*(tmp_path / f"{n}.txt" for n in range(1000)))
    calls = []
    list_images(str(tmp_path), on_progress=calls.append)
    assert calls == [0, 256, 512, 768]


def test_a_folder_of_other_files_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(image_folder, "MAX_ENTRIES", 300)
    touch(*(tmp_path / f"{n}.txt" for n in range(1000)))
    listing = list_images(str(tmp_path))
    assert not listing.complete
    assert listing.other_files == 300
    assert look(str(tmp_path)) == "no_image"


def test_a_folder_for_every_sample_is_cut_too(tmp_path, monkeypatch):
    monkeypatch.setattr(image_folder, "MAX_FOLDERS", 20)
    touch(*(tmp_path / f"{n}" / "image.jpg" for n in range(50)))
    listing = list_images(str(tmp_path))
    assert len(listing.paths) == 20
    assert not listing.complete


def test_links_to_files_and_folders_are_followed(tmp_path):
    touch(tmp_path / "store" / "blob.jpg")
    data = tmp_path / "data"
    data.mkdir()
    (data / "file.jpg").symlink_to(tmp_path / "store" / "blob.jpg")
    (data / "class").symlink_to(tmp_path / "store")
    (data / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    assert names(list_images(str(data)), data) == {"file.jpg", "class/blob.jpg"}


@pytest.mark.timeout(10)
def test_loops_of_links_end(tmp_path):
    touch(tmp_path / "a" / "one.jpg")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to("self")
    (tmp_path / "again").symlink_to(tmp_path / "a")
    listing = list_images(str(tmp_path))
    assert [Path(path).name for path in listing.paths] == ["one.jpg"]
    assert listing.complete


@pytest.mark.timeout(10)
def test_pipes_and_sockets_named_like_images_are_not_samples(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.jpg")
    monkeypatch.chdir(tmp_path)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.jpg")
        assert look(str(tmp_path)) == "no_image"


def test_names_that_are_not_text_can_be_fetched(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"bad\xff\xfename.jpg")
    Path(os.fsdecode(path)).write_bytes(b"bytes")
    (found,) = list_images(str(tmp_path)).paths
    assert os.fsencode(found) == path
    assert fetch(found) == b"bytes"
    assert FileSource((found,)).name(0) == found


def test_fetch_gives_the_whole_file(tmp_path):
    content = os.urandom(300_000)
    (tmp_path / "a.jpg").write_bytes(content)
    source = FileSource((str(tmp_path / "a.jpg"),))
    assert len(source) == 1
    assert source.fetch(0) == content


def test_first_look(tmp_path):
    touch(tmp_path / "file.jpg", tmp_path / "text" / "a.txt", tmp_path / "images" / "x" / "a.jpg")
    (tmp_path / "empty" / "class").mkdir(parents=True)
    assert look(str(tmp_path / "file.jpg")) == "not_a_folder"
    assert look(str(tmp_path / "file.jpg" / "below")) is None
    assert look(str(tmp_path / "missing")) is None
    assert look("nul\0byte") is None
    assert look(str(tmp_path / "text")) == "no_image"
    assert look(str(tmp_path / "empty")) == "empty"
    assert look(str(tmp_path / "images")) == "ok"


def test_first_look_finds_an_image_behind_many_empty_folders(tmp_path):
    for number in range(100):
        (tmp_path / f"{number:03}").mkdir()
    touch(tmp_path / "050" / "deep" / "a.jpg")
    assert look(str(tmp_path)) == "ok"


def test_first_look_reads_no_byte(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"x" * 4096)
    code = f"""
from preflight.data.image_folder import look
def read_bytes():
    return int(open("/proc/self/io").read().split("rchar:")[1].split()[0])
before = read_bytes()
alone = read_bytes() - before
before = read_bytes()
assert look({str(tmp_path)!r}) == "ok"
assert read_bytes() - before < alone + 64
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def as_nobody(code, *arguments):
    """Run code as a user without rights, with what it imports loaded before."""
    if os.geteuid() != 0:
        prelude = ""
    else:
        prelude = "import os; os.setgroups([]); os.setegid(65534); os.seteuid(65534)\n"
    imports = "import sys; from preflight.data.image_folder import list_images, look\n"
    done = subprocess.run(
        [sys.executable, "-c", imports + prelude + code, *map(str, arguments)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.fixture
def open_tmp_path(tmp_path):
    """A directory that another user may reach: pytest's own is private."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(0o711)
    tmp_path.chmod(0o755)
    return tmp_path


def test_a_folder_that_may_not_be_read(open_tmp_path):
    root = open_tmp_path
    touch(root / "closed" / "a.jpg", root / "half" / "closed" / "a.jpg", root / "half" / "b.jpg")
    touch(root / "only" / "closed" / "a.jpg", root / "sealed" / "a.jpg")
    for folder in ("closed", "half/closed", "only/closed"):
        (root / folder).chmod(0)
    (root / "sealed" / "a.jpg").chmod(0)
    code = """
for name in ("closed", "closed/below", "half", "only", "sealed"):
    print(look(sys.argv[1] + "/" + name))
listing = list_images(sys.argv[1] + "/half")
print(len(listing.paths), listing.unreadable_folders)
"""
    try:
        answer = as_nobody(code, root)
    finally:
        for folder in ("closed", "half/closed", "only/closed"):
            (root / folder).chmod(0o700)
    assert answer == ["unreadable", "unreadable", "ok", "unreadable", "unreadable", "1", "1"]


def test_needs_neither_torch_nor_numpy_nor_pillow():
    code = """
import sys
import preflight.data.image_folder, preflight.data.generated
assert not {"torch", "numpy", "PIL"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
