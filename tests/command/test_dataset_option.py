"""--dataset: the job's own data, through the real command, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command.running import SCRIPT, SMALL_LOADER, Gate, Ran, assert_one_verdict

pytestmark = pytest.mark.timeout(120)

QUICK = ("--set=stats.warmup_s=0.1", "--set=stats.block_s=0.1", "--skip=shm")
LOADER = ("run", "--thresholds=cpu", "--check=dataloader", *SMALL_LOADER, *QUICK)

JOB = """
import os, time, torch
from torch.utils.data import *

class Images(Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.zeros(3, 8, 8), index

class Stream(IterableDataset):
    def __iter__(self):
        yield from (Images()[index] for index in range(60))

def dataset():
    with open("seen", "w") as file:
        names = "PREFLIGHT_DATA", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"
        file.write(" ".join(os.environ.get(name, "-") for name in names))
    return Images()

def stream():
    return Stream()

def loader():
    batches = BatchSampler(RandomSampler(Images()), 6, drop_last=False)
    return DataLoader(Images(), batch_sampler=batches, num_workers=2, prefetch_factor=3,
                      collate_fn=lambda samples: [image for image, _ in samples])

class Unlabelled(Images):
    def __getitem__(self, index):
        raise KeyError("label")

def unmounted():
    raise FileNotFoundError("/data/train")
"""


def job(gate: Gate, text: str = JOB) -> None:
    (gate.folder / "job.py").write_text(text)


def reading(ran: Ran) -> dict[str, object]:
    seen = ran.result("dataloader")["reading"]
    return dict(seen[0] if isinstance(seen, list) else seen)


def test_a_dataset_beside_files_that_look_like_the_standard_library(gate: Gate) -> None:
    job(gate)
    for name in ("queue.py", "random.py", "logging.py", "numpy.py"):
        (gate.folder / name).write_text("raise RuntimeError('shadowed')")
    (gate.folder / "data").mkdir()
    (gate.folder / "data" / "shard-0.tar").write_text("no image")
    ran = gate.run(*LOADER, "--dataset=job:dataset", "--data=data", command=SCRIPT)
    assert_one_verdict(ran, 0)
    assert (gate.folder / "seen").read_text() == "data 0 0 1 1"
    seen = reading(ran)
    assert (seen["dataset"], seen["dataset_kind"]) == ("job:dataset", "dataset")
    assert (seen["num_workers"], seen["batch_size"], seen["prefetch_factor"]) == (1, 4, 2)
    assert ran.report["settings"]["options"]["dataset"] == "job:dataset"
    (warning,) = ran.report["settings"]["warnings"]
    assert "shm" in warning and "`sample`" in warning
    assert [f["id"] for f in ran.result("dataloader")["findings"]] == ["dataloader.supply"]
    gate.assert_nothing_left()


def test_a_stream_named_by_the_environment(gate: Gate) -> None:
    job(gate)
    ran = gate.run(*LOADER, env={"PREFLIGHT_DATASET": "job:stream"})
    assert_one_verdict(ran, 0)
    seen = reading(ran)
    assert (seen["dataset_kind"], seen["batch_size"]) == ("iterable_dataset", 4)


def test_a_dataloader_with_a_sampler_and_a_collate_of_its_own(gate: Gate) -> None:
    job(gate)
    ran = gate.run(*LOADER, "--dataset=job:loader")
    assert_one_verdict(ran, 0)
    seen = reading(ran)
    assert seen["dataset_kind"] == "dataloader"
    assert (seen["num_workers"], seen["batch_size"], seen["prefetch_factor"]) == (2, None, 3)
    gate.assert_nothing_left()


@pytest.mark.parametrize(
    ("factory", "cause", "in_output"),
    [
        ("unmounted", "job:unmounted raised FileNotFoundError: /data/train (", "unmounted"),
        ("Unlabelled", "loading from job:Unlabelled raised KeyError: 'label' (", "__getitem__"),
    ],
)
def test_user_code_that_raises_is_an_error(
    gate: Gate, factory: str, cause: str, in_output: str
) -> None:
    job(gate)
    ran = gate.run(*LOADER, f"--dataset=job:{factory}")
    assert_one_verdict(ran, 3)
    finding = ran.finding("dataloader.completed")
    assert finding["cause"].startswith(cause) and "job.py, line " in finding["cause"]
    assert finding["remedy"] and finding["blame"] == "setup"
    assert in_output in ran.result("dataloader")["output"]
    assert finding["cause"] in ran.stdout.replace("\n", " ") or "job.py" in ran.stdout
    gate.assert_nothing_left()


def assert_refused(ran: Ran, words: str) -> None:
    assert_one_verdict(ran, 2)
    (line,) = [line for line in ran.stderr.splitlines() if line.startswith("preflight: ")]
    assert words in line and "Traceback" not in ran.stderr
    assert ran.report["results"] == [] and words in ran.report["reason"]


@pytest.mark.parametrize(
    ("spec", "text", "words"),
    [
        ("job.py:make", "", "--dataset job.py:make: write MODULE:FACTORY"),
        ("jobb:make", "", "--dataset jobb:make: there is no module jobb in PYTHONPATH (not set)"),
        ("job:make", "import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found' ("),
        ("job:make", "print('GPU-less')\n1 / 0\n", "division by zero ("),
        ("job:make", "import sys\nprint('set ROOT first')\nsys.exit(1)\n", "sys.exit(1)"),
        ("job:make", "", "has no make"),
        ("job:make", "make = 3\n", "make is an int"),
    ],
)
def test_what_cannot_be_imported_is_wrong_use(gate: Gate, spec: str, text: str, words: str) -> None:
    job(gate, text)
    ran = gate.run("run", "--thresholds=cpu", f"--dataset={spec}")
    assert_refused(ran, words)
    printed = [line[7:-2] for line in text.splitlines() if line.startswith("print(")]
    assert all(f"it printed last: {line}" in ran.stderr for line in printed)
    if text and "import" in text:
        assert f"{gate.folder}/job.py, line " in ran.stderr
    gate.assert_nothing_left()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import time\ntime.sleep(600)\n", "importing it took more than"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "(signal 11)"),
        ("import os\nos._exit(1)\n", "importing it ended the process"),
    ],
)
def test_an_import_that_hangs_or_crashes_decides_nothing(gate: Gate, text: str, words: str) -> None:
    job(gate, text)
    ran = gate.run("run", "--thresholds=cpu", "--dataset=job:make", "--deadline=4s")
    assert_one_verdict(ran, 3)
    assert words in ran.report["reason"] and words in ran.stdout
    gate.assert_nothing_left()


def test_the_users_module_is_never_imported_by_the_command(gate: Gate) -> None:
    job(gate, "import os\nopen('who', 'a').write(f'{os.getpid()}\\n')\n"
              "def make():\n    open('called', 'a').write(f'{os.getpid()}\\n')\n")  # fmt: skip
    running = gate.start(*LOADER, "--dataset=job:make")
    command = running.process.pid
    ran = running.end()
    assert_one_verdict(ran, 3)
    assert "returned None; it must return a Dataset" in ran.stdout.replace("\n", " ")
    imported = [int(line) for line in (gate.folder / "who").read_text().splitlines()]
    called = [int(line) for line in (gate.folder / "called").read_text().splitlines()]
    assert len(imported) == 2 and called == imported[1:]
    assert command not in imported


def test_a_module_on_pythonpath_comes_first(gate: Gate, tmp_path: Path) -> None:
    job(gate, "make = 1\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "job.py").write_text("mine = 1\n")
    ran = gate.run("run", "--thresholds=cpu", "--dataset=job:make",
                   env={"PYTHONPATH": str(tmp_path / "elsewhere")})  # fmt: skip
    assert_refused(ran, f"module job ({tmp_path}/elsewhere/job.py) has no make")
