"""The layers of the design, read off the imports: who may know whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "preflight"
FILES = {
    str(path.relative_to(PACKAGE)): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "thresholds" not in path.parts
}
PURE = {
    "checks/contract.py", "checks/dataloader/advice.py", "checks/dataloader/case.py",
    "checks/dataloader/cause.py", "checks/dataloader/causes.py",
    "checks/dataloader/evidence.py", "checks/dataloader/explained.py",
    "checks/dataloader/judge.py", "checks/dataloader/more.py", "checks/dataloader/reading.py",
    "checks/dataloader/signs.py", "checks/dataloader/start_up.py", "checks/dataloader/told.py",
    "checks/dataloader/what_if.py", "checks/driver_cuda/coverage.py",
    "checks/driver_cuda/judge.py", "checks/driver_cuda/presence.py",
    "checks/driver_cuda/reading.py", "checks/driver_cuda/versions.py", "checks/feed/judge.py",
    "checks/feed/prediction.py", "checks/feed/reading.py", "checks/gpus/judge.py",
    "checks/gpus/reading.py", "checks/limits/judge.py", "checks/limits/reading.py",
    "checks/pinned_copy/cause.py", "checks/pinned_copy/fraction.py",
    "checks/pinned_copy/judge.py", "checks/pinned_copy/link.py",
    "checks/pinned_copy/reading.py", "checks/shm/judge.py", "checks/shm/reading.py",
    "checks/storage/cause.py", "checks/storage/judge.py", "checks/storage/reading.py",
    "cuda_facts.py", "diagnosis/cuda_circumstances.py", "diagnosis/cuda_codes.py",
    "diagnosis/data_paths.py", "diagnosis/ends.py", "diagnosis/headroom.py",
    "diagnosis/job_faults.py", "diagnosis/loader_failures.py", "diagnosis/nvml_codes.py",
    "diagnosis/remedies.py", "ended.py", "exit_code.py", "facts.py", "gpu_facts.py", "job.py",
    "judge.py", "measure/blocks.py", "measure/disturbance.py", "measure/evidence.py",
    "measure/model_rate.py", "measure/search.py", "measure/stage_rates.py", "measure/stats.py",
    "measure/stopping.py", "measure/window.py", "model.py", "needs.py", "outcome.py", "plan.py",
    "seed.py", "settings/sections.py", "settings/tree.py",
}  # fmt: skip
PURE_MODULES = {
    "preflight." + name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    for name in PURE
} | {
    "preflight",
    "preflight.checks",
    "preflight.checks.dataloader",
    "preflight.checks.driver_cuda",
    "preflight.checks.gpus",
    "preflight.checks.pinned_copy",
    "preflight.checks.storage",
    "preflight.diagnosis",
    "preflight.measure",
}


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, at any level, but for what only a type checker sees."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module.startswith("preflight"):
                for alias in node.names:
                    name = node.module.replace(".", "/") + f"/{alias.name}"
                    package = PACKAGE.parent / name / "__init__.py"
                    if (PACKAGE.parent / f"{name}.py").exists() or package.exists():
                        yield f"{node.module}.{alias.name}"


def names_called(path: Path) -> set[str]:
    return {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }


def within(name: str, *folders: str) -> bool:
    return any(name.startswith(f"{folder}/") for folder in folders)


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_files_import_only_pure_things(name: str) -> None:
    for module in imports(FILES[name]):
        top = module.split(".")[0]
        if top == "preflight":
            assert module in PURE_MODULES, f"{name} imports {module}"
        else:
            assert top in sys.stdlib_module_names or top == "pydantic", f"{name} imports {module}"
            assert top not in {"os", "pathlib", "time", "subprocess", "socket"}, (
                f"{name} imports {module}: a pure file has no clock and no machine"
            )


def test_who_calls_itself_pure_is_held_to_it() -> None:
    said = {
        name
        for name, path in FILES.items()
        if "Pure" in (ast.get_docstring(ast.parse(path.read_text())) or "")
    }
    assert said <= PURE


@pytest.mark.parametrize("name", FILES)
def test_heavy_libraries_stay_where_they_belong(name: str) -> None:
    homes = {
        "torch": ("measure",),
        "numpy": ("measure", "data"),
        "PIL": ("measure", "data"),
        "pynvml": ("machine/nvml.py",),
        "junit_xml": ("report",),
        "rich": ("report",),
    }
    for module in imports(FILES[name]):
        home = homes.get(module.split(".")[0])
        assert home is None or name in home or within(name, *home), f"{name} imports {module}"


@pytest.mark.parametrize("name", [name for name in FILES if within(name, "machine", "measure")])
def test_reading_and_measuring_never_judge_or_report(name: str) -> None:
    for module in imports(FILES[name]):
        assert not module.startswith(("preflight.report", "preflight.judge", "preflight.outcome"))
        assert not (within(name, "machine") and module.startswith("preflight.measure"))


@pytest.mark.parametrize("name", [name for name in FILES if within(name, "report")])
def test_reports_know_only_the_records(name: str) -> None:
    for module in imports(FILES[name]):
        if module.startswith("preflight."):
            assert module.startswith(("preflight.report", "preflight.model", "preflight.outcome"))


@pytest.mark.parametrize("name", FILES)
def test_only_a_few_files_start_processes_print_or_exit(name: str) -> None:
    may_start = {"isolate.py", "deliver.py", "measure/burner.py", "measure/reader_set.py"}
    assert "subprocess" not in set(imports(FILES[name])) or name in may_start
    assert "multiprocessing" not in set(imports(FILES[name]))
    called = names_called(FILES[name])
    assert "print" not in called
    may_exit = {"__main__.py", "child.py"}
    assert not called & {"sys.exit", "os._exit", "exit"} or name in may_exit
    assert "os.execvpe" not in called or name == "launch.py"


@pytest.mark.parametrize("name", FILES)
def test_the_gate_has_two_callers_that_do_not_know_each_other(name: str) -> None:
    callers = {
        "preflight.gate": {"cli.py", "api.py"},
        "preflight.cli": {"__main__.py"},
        "preflight.api": {"__init__.py"},
    }
    for module in imports(FILES[name]):
        assert name in callers.get(module, {name}), f"{name} imports {module}"


def test_the_call_from_python_keeps_off_the_commands_process() -> None:
    known = set(imports(FILES["api.py"]))
    assert not known & {"typer", "preflight.console", "preflight.options", "preflight.progress"}
    changing = {"signal.signal", "os.chdir", "os.putenv", "os.environ.update", "sys.stdout.write"}
    assert not names_called(FILES["api.py"]) & changing


def test_the_guard_and_what_it_needs_are_standard_library() -> None:
    guards = ("__main__.py", "launch.py", "ranks.py", "last_words.py", "deliver.py", "__init__.py")
    for name in guards:
        for module in imports(FILES[name]):
            if module == "preflight.cli":
                continue  # imported inside the guard's try
            top = module.split(".")[0]
            assert top in sys.stdlib_module_names or top == "preflight", f"{name}: {module}"


def test_file_sizes() -> None:
    """A second thing hides in a long file. Tables are exempt."""
    for name, path in FILES.items():
        lines = len(path.read_text().splitlines())
        most = 175 if within(name, "checks") else 300
        assert lines <= most, f"{name} has {lines} lines"
        assert path.stem not in {"utils", "helpers", "common", "misc"}


@pytest.mark.parametrize("arguments", [["--help"], ["checks"], ["explain", "dataloader"]])
def test_looking_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom preflight.cli import run_command\n"
        f"code = run_command({arguments!r})\n"
        "heavy = {'torch', 'numpy', 'pynvml', 'PIL', 'rich', 'junit_xml'} & set(sys.modules)\n"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
