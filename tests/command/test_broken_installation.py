"""What is installed is broken: undecided, one line, no old report; never a 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command.running import FAIL_LIMITS, MODULE, SCRIPT, Gate, Ran, assert_one_verdict

pytestmark = pytest.mark.timeout(60)

QUICK = ("run", "--thresholds=quick", "--check=limits", "--set=limits.min_memory_headroom_gib=0")
# What fails, and the module that fails: at start, while planning, while a report is drawn.
BROKEN = {
    "typer": "raise ImportError('broken')",
    "pydantic": "raise ImportError('libc.so.6: version GLIBC_2.99 not found\\nand more')",
    "yaml": "def broken(:",
    "junit_xml": "raise ImportError('broken')",
}


def break_module(gate: Gate, name: str, code: str) -> dict[str, str | None]:
    """The environment in which importing `name` runs `code`."""
    file = gate.folder / "broken" / name / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(code + "\n")
    return {"PYTHONPATH": str(gate.folder / "broken")}


@pytest.mark.parametrize(
    ("name", "command"), [*((name, MODULE) for name in BROKEN), ("pydantic", SCRIPT)]
)
def test_a_broken_dependency_is_undecided_and_replaces_the_old_pass(
    gate: Gate, name: str, command: tuple[str, ...]
) -> None:
    if not Path(command[0]).exists():
        pytest.skip("the console script is not installed")
    assert_one_verdict(gate.run(*QUICK), 0)
    ran = gate.run(*QUICK, command=command, env=break_module(gate, name, BROKEN[name]))
    assert_one_verdict(ran, 3)
    (line,) = ran.stderr.splitlines()
    assert line.startswith("preflight: preflight itself failed (")
    assert ran.report["outcome"] == "error" and "nothing is decided" in ran.report["reason"]


def test_a_check_that_cannot_be_loaded_stops_the_run(gate: Gate) -> None:
    ran = gate.run(*QUICK, standin="missing:preflight.checks.shm")
    assert_one_verdict(ran, 3)
    assert "preflight.checks.shm" in ran.report["reason"]
    assert len(ran.stderr.splitlines()) + len(ran.stdout.splitlines()) <= 4


def test_no_report_folder_is_no_trouble(gate: Gate) -> None:
    ran = gate.run(*QUICK, env=break_module(gate, "yaml", BROKEN["yaml"]), reports=False)
    assert ran.code == 3 and not gate.reports.exists()


@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_a_table_that_cannot_be_drawn_does_not_cost_the_verdict(gate: Gate, verdict: str) -> None:
    env = break_module(gate, "rich", "raise ImportError('broken')")
    more = () if verdict == "pass" else (FAIL_LIMITS,)
    ran = gate.run(*QUICK, *more, env=env)
    assert_one_verdict(ran, 0 if verdict == "pass" else 1)
    assert f"{verdict.upper()} node" in ran.stderr


LOADER = ("run", "--thresholds=cpu", "--check=dataloader", "--skip=shm")


def loader_on(gate: Gate, torch: str) -> Ran:
    return gate.run(*LOADER, env=break_module(gate, "torch", torch))


@pytest.mark.parametrize("torch", [
    "raise ImportError('libcudart.so.12: cannot open shared object file: No such file')",
    "raise OSError('/usr/lib/libtorch_global_deps.so: cannot open shared object file')",
    "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')",
    "raise RuntimeError('operator torchvision::nms does not exist')",
    "__version__ = '1.0'",
])  # fmt: skip
def test_a_broken_torch_is_the_images_fault_and_no_verdict_on_the_node(
    gate: Gate, torch: str
) -> None:
    ran = loader_on(gate, torch)
    assert_one_verdict(ran, 3)
    finding = ran.finding("dataloader.completed")
    assert (finding["outcome"], finding["blame"]) == ("error", "image")
    assert "torch" in finding["cause"] and finding["remedy"]
    gate.assert_nothing_left()


def test_a_torch_that_crashes_python_is_no_verdict_either(gate: Gate) -> None:
    ran = loader_on(gate, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert_one_verdict(ran, 3)
    assert ran.finding("dataloader.completed")["outcome"] == "error"
