"""`preflight run -- CMD`: CMD starts only on a pass, then as if we had never been there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command.running import (
    FAIL_LIMITS,
    MODULE,
    PASS_HERE,
    Gate,
    Running,
    assert_one_verdict,
    kill,
    wait_until,
)

pytestmark = pytest.mark.timeout(90)

PASSING = ("run", "--thresholds=quick", "--check=limits", "--set=limits.min_memory_headroom_gib=0")
FAILING = ("run", "--thresholds=quick", "--check=limits", FAIL_LIMITS)
HANGING = ("run", "--thresholds=quick", "--set=limits.min_memory_headroom_gib=0")


def run(gate: Gate, options: tuple[str, ...], *command: str, **more: Any) -> Any:
    """Reports go where the gate's own options say, so these come before the command."""
    return start(gate, options, *command, **more).end()


def start(gate: Gate, options: tuple[str, ...], *command: str, **more: Any) -> Running:
    reports = f"--report-dir={gate.reports}"
    return gate.start(*options, reports, "--", *command, reports=False, **more)


def children(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(name))
    return found


# -- codes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 91])
def test_after_a_pass_the_code_is_the_commands(gate: Gate, code: int) -> None:
    ran = run(gate, PASSING, "sh", "-c", f"exit {code}")
    assert ran.code == code
    assert (ran.report["exit_code"], ran.report["outcome"]) == (0, PASS_HERE)


def test_a_command_that_dies_of_a_signal_does_so_in_our_place(gate: Gate) -> None:
    assert run(gate, PASSING, "sh", "-c", "kill -9 $$").code == -signal.SIGKILL


@pytest.mark.parametrize(
    ("options", "standin", "code", "why"),
    [
        (FAILING, "", 91, "touch was not started: the gate failed"),
        ((*PASSING, "--no-such-option"), "", 92, "touch was not started: the gate was used wrong"),
        ((*PASSING, "--thresholds=nowhere"), "", 92, "touch was not started"),
        (PASSING, "raise:limits", 93, "touch was not started: the gate is undecided"),
        (PASSING, "missing:pydantic", 93, "nothing is decided"),
        (PASSING, "missing:preflight.launch", 93, "nothing is decided"),
    ],
)
def test_without_a_pass_the_gates_codes_are_91_to_93(
    gate: Gate, options: tuple[str, ...], standin: str, code: int, why: str
) -> None:
    ran = run(gate, options, "touch", "started", standin=standin)
    assert ran.code == code and why in ran.stderr
    assert ran.report["exit_code"] == code - 90
    assert not (gate.folder / "started").exists()
    gate.assert_nothing_left()


@pytest.mark.parametrize(
    ("options", "standin"),
    [
        ((*FAILING, "--report-only"), ""),
        ((*PASSING, "--allow-undecided"), "raise:limits"),
        ((*FAILING, "--waive=limits"), ""),
    ],
)
def test_what_makes_the_code_0_starts_the_command(
    gate: Gate, options: tuple[str, ...], standin: str
) -> None:
    assert run(gate, options, "sh", "-c", "exit 7", standin=standin).code == 7


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--help", "--", "touch", "started"),
        ("run", "-qh", "--", "touch", "started"),
        ("--version", "--", "touch", "started"),
        ("checks", "--", "touch", "started"),
    ],
)
def test_only_a_gate_starts_it(gate: Gate, arguments: tuple[str, ...]) -> None:
    ran = gate.run(*arguments, reports=False)
    assert ran.code == (2 if arguments[0] == "checks" else 0)
    assert not (gate.folder / "started").exists()


def test_the_command_is_named_behind_the_dashes(gate: Gate) -> None:
    for command in ((), ("",)):
        ran = run(gate, PASSING, *command)
        assert ran.code == 92 and "name the command" in ran.stderr
        assert ran.report["exit_code"] == 2


def test_run_may_be_left_out(gate: Gate) -> None:
    assert run(gate, PASSING[1:], "sh", "-c", "exit 7").code == 7


def test_the_commands_options_are_not_ours(gate: Gate) -> None:
    command = ("sh", "-c", 'test "$*" = "--report-dir=there -- --help"', "sh")
    theirs = ("--report-dir=there", "--", "--help")
    assert run(gate, PASSING, *command, *theirs).code == 0
    assert gate.run("run", "--nonsense", "--", "x", *theirs, reports=False).code == 92
    assert run(gate, PASSING, "x", *theirs, standin="missing:pydantic").code == 93
    assert not (gate.folder / "there").exists()


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        ("no-such-program", 127, "No such file"),
        ("./plain", 126, "Permission denied"),
        (".", 126, "Permission denied"),
        ("./empty", 126, "Exec format error"),
    ],
)
def test_a_command_that_cannot_start_is_what_it_is_in_a_shell(
    gate: Gate, command: str, code: int, why: str
) -> None:
    (gate.folder / "plain").write_text("")
    (gate.folder / "empty").touch(mode=0o755)
    ran = run(gate, (*PASSING, "--quiet"), command)
    (line,) = ran.stderr.splitlines()
    assert ran.code == code and why in line and line.startswith("preflight: ")


# -- what the command finds -----------------------------------------------------------------------

# Programs that change none of it themselves, as a shell would.
STATE = ("cat", "/proc/self/status", "/proc/self/limits", "/proc/self/environ")
OPEN = ("readlink", *(f"/proc/self/fd/{number}" for number in range(12)), "/proc/self/cwd")
STRANGE = {
    "plain": lambda: None,
    "ignored": lambda: [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 17)],
    "blocked": lambda: (signal.pthread_sigmask(signal.SIG_BLOCK, {1, 15, 17}), os.umask(0o027)),
    "closed": lambda: os.closerange(0, 1),
}


@pytest.mark.parametrize(
    ("started", "look"), [*((name, STATE) for name in STRANGE), ("plain", OPEN), ("closed", OPEN)]
)
def test_it_finds_everything_as_we_found_it(
    gate: Gate, started: str, look: tuple[str, ...]
) -> None:
    # The C locale, in which Python sets a variable of its own; and a descriptor passed down.
    env = dict.fromkeys(("LC_ALL", "LANG", "LC_CTYPE")) | {"ODD": "a=b"}
    read, write = os.pipe()
    options: dict[str, Any] = {
        "env": env, "preexec_fn": STRANGE[started], "pass_fds": (read,),
        "stdin": subprocess.DEVNULL, "start_new_session": False,
    }  # fmt: skip
    try:
        direct = gate.start(command=look, reports=False, **options).end()
        through = start(gate, (*PASSING, "--format=json"), *look, **options).end()
    finally:
        os.close(read)
        os.close(write)
    after = through.stdout.partition("\n}\n")[2]
    assert steady(after) == steady(direct.stdout) != []
    assert through.code == direct.code


def steady(text: str) -> list[str]:
    """The lines without what no two runs share."""
    own = ("Name", "Tgid", "Pid", "NSpid", "NStgid", "SigQ", "Vm", "Rss", "voluntary", "nonvol",
           "Hugetlb", "FDSize", "untag")  # fmt: skip
    lines = re.sub(r"(pipe:\[|#)\d+", r"\1N", text).splitlines()
    return [line for line in lines if not line.startswith(own)]


def test_it_gets_our_standard_input_and_its_output_follows_the_table(gate: Gate) -> None:
    running = start(gate, PASSING, "sh", "-c", "echo now; cat", stdin=subprocess.PIPE)
    stdout, _ = running.process.communicate(b"a line for the command\n", timeout=60)
    table, _, rest = stdout.decode().partition("now\n")
    assert table.startswith("PASS") and "exit code 0" in table
    assert rest == "a line for the command\n"
    running.errors.close()


def test_quiet_is_one_line_before_the_command(gate: Gate) -> None:
    ran = run(gate, (*PASSING, "-q"), "echo", "now")
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["PASS", "now"]
    assert ran.stderr == ""
    ran = run(gate, (*FAILING, "-q"), "echo", "now")
    assert ran.stdout.startswith("FAIL") and len(ran.stdout.splitlines()) == 1
    assert (ran.code, ran.stderr) == (91, "")


def test_a_lost_table_does_not_cost_the_command(gate: Gate) -> None:
    command = ("bash", "-c", '"$@" -- sh -c "exit 7" >/dev/full', "sh", *MODULE, *PASSING)
    assert gate.run(command=command, reports=False).code == 7


def test_reports_are_whole_and_we_are_gone_when_it_starts(clean_gate: Gate) -> None:
    options = ("run", "--thresholds=quick", "--set=limits.min_memory_headroom_gib=0",
               "--set=shm.min_free_gib=0")  # fmt: skip
    running = start(clean_gate, options, "sh", "-c", "echo here >&2; sleep 60")
    running.wait_for("here")
    pid = running.process.pid
    (sleep,) = children(pid)
    assert sorted(clean_gate.processes()) == [pid, sleep]
    assert sorted(os.listdir(clean_gate.reports)) == ["preflight.json", "preflight.xml"]
    kill(sleep, signal.SIGKILL)
    ran = running.end()
    assert ran.report["complete"] and ran.report["exit_code"] == 0
    clean_gate.assert_nothing_left()


def test_children_that_we_were_given_stay_and_ended_ones_are_taken_in(gate: Gate) -> None:
    """`helper & exec preflight run -- CMD`, as entry points of images do."""
    line = '(exit 0) & sleep 30 & exec "$@"'
    look = "import os; print(os.waitpid(-1, os.WNOHANG))"
    running = gate.start(
        command=("sh", "-c", line, "sh", *MODULE, *PASSING, "-q", "--", sys.executable, "-c", look),
        reports=False, stdout=(gate.folder / "out").open("wb"),
    )  # fmt: skip
    assert running.end().code == 0
    assert (gate.folder / "out").read_text().splitlines()[-1] == "(0, 0)"
    (sleep,) = gate.processes()
    kill(sleep, signal.SIGKILL)


@pytest.mark.parametrize(("options", "said"), [(PASSING, ""), (FAILING, "FAIL")])
def test_a_containers_last_word_is_the_gates_only_where_it_is_the_end(
    gate: Gate, options: tuple[str, ...], said: str
) -> None:
    (gate.folder / "log").touch()
    code = (
        "from pathlib import Path\nfrom preflight import gate\n"
        "gate._TERMINATION_LOG = Path('log')\nfrom preflight.__main__ import main\nmain()"
    )
    start(gate, options, "true", command=(sys.executable, "-c", code)).end()
    assert (gate.folder / "log").read_text()[:4] == said


# -- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_gate_starts_nothing(gate: Gate, number: signal.Signals) -> None:
    running = start(gate, HANGING, "touch", "started", standin="hang:shm")
    gate.mark()
    ran = running.send(number).end()
    assert_one_verdict(ran, 130 if number is signal.SIGINT else 143)
    assert not (gate.folder / "started").exists()
    gate.assert_nothing_left()


def test_a_signal_after_the_start_is_the_commands(gate: Gate) -> None:
    running = start(gate, PASSING, "sh", "-c", "trap 'exit 9' TERM; echo here >&2; read x",
                    stdin=subprocess.PIPE)  # fmt: skip
    running.wait_for("here").send(signal.SIGTERM)
    assert running.process.wait(30) == 9
    running.errors.close()
    if running.process.stdin:
        running.process.stdin.close()


def test_a_signal_between_verdict_and_start_is_not_lost(gate: Gate) -> None:
    """It finds rank 0 waiting for a rank that never asks."""
    running = start(gate, PASSING, "touch", "started", env=ranks_of(2)(0), stdout=None)
    report = gate.reports / "preflight.json"
    wait_until(lambda: report.exists() and '"complete": true' in report.read_text(), bool)
    assert running.send(signal.SIGTERM).end(20).code == 143
    assert not (gate.folder / "started").exists()


# -- local ranks ----------------------------------------------------------------------------------


def ranks_of(size: int, slurm: bool = False, **more: str) -> Callable[[int], dict[str, str | None]]:
    """The variables of a launcher's local ranks; the port makes each start its own."""
    none = dict.fromkeys(name for name in os.environ if name.startswith(("SLURM_", "TORCHELASTIC")))
    port = str(20000 + int.from_bytes(os.urandom(2), "big") % 20000)

    def rank(number: int) -> dict[str, str | None]:
        if slurm:
            theirs = {"SLURM_JOB_ID": port, "SLURM_STEP_ID": "0", "SLURM_NODEID": "0",
                      "SLURM_LOCALID": str(number), "SLURM_STEP_TASKS_PER_NODE": f"{size}(x2)",
                      }  # fmt: skip
        else:
            theirs = {"LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": str(size),
                      "MASTER_PORT": port}  # fmt: skip
        return {**none, **theirs, **more}

    return rank


def start_all(
    gate: Gate, options: tuple[str, ...], size: int = 3, slurm: bool = False, **more: Any
) -> list[Running]:
    env = ranks_of(size, slurm)
    command = ("sh", "-c", "echo RANK ${LOCAL_RANK:-$SLURM_LOCALID}; exit 7")
    # Rank 0 last: the others have to wait for it to come.
    numbers = [*range(1, size), 0]
    started = {n: start(gate, options, *command, env=env(n), **more) for n in numbers}
    return [started[number] for number in range(size)]


@pytest.mark.parametrize("slurm", [False, True], ids=["torchrun", "slurm"])
def test_one_rank_gates_and_all_start(gate: Gate, slurm: bool) -> None:
    ran = [running.end() for running in start_all(gate, (*PASSING, "-q"), slurm=slurm)]
    assert [one.code for one in ran] == [7, 7, 7], [one.stderr for one in ran]
    assert [one.stdout.splitlines()[-1] for one in ran] == [f"RANK {n}" for n in range(3)]
    assert [one.stdout.count("PASS") for one in ran] == [1, 0, 0]
    gate.assert_nothing_left()


@pytest.mark.parametrize(
    ("options", "standin", "code"),
    [
        (FAILING, "", 91),
        ((*PASSING, "--no-such-option"), "", 92),
        (PASSING, "missing:pydantic", 93),
    ],
)
def test_without_a_pass_none_starts_and_all_end_alike(
    gate: Gate, options: tuple[str, ...], standin: str, code: int
) -> None:
    ran = [running.end() for running in start_all(gate, options, standin=standin)]
    assert [one.code for one in ran] == [code] * 3, [one.stderr for one in ran]
    assert not any("RANK" in one.stdout for one in ran)
    assert [one.stdout + one.stderr for one in ran[1:]] == ["", ""]  # rank 0 speaks for all
    assert ran[0].report["exit_code"] == code - 90


def test_help_is_for_all_ranks(gate: Gate) -> None:
    ran = [running.end() for running in start_all(gate, ("run", "--help"), size=2)]
    assert [one.code for one in ran] == [0, 0]
    assert ran[0].stdout.startswith("Usage") and ran[1].stdout == ""


def test_ranks_that_wait_load_nothing_and_write_no_report(gate: Gate) -> None:
    env = ranks_of(2)
    waiting = start(gate, PASSING, "echo", "started", env=env(1), standin="forbid:typer")
    ran = start(gate, PASSING, "true", env=env(0), stdin=None).end()
    assert ran.code == 0 and ran.report["outcome"] == PASS_HERE
    before = (gate.reports / "preflight.json").stat().st_mtime_ns
    assert waiting.end().stdout == "started\n"
    assert (gate.reports / "preflight.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("number", "codes"),
    [(signal.SIGKILL, [-9, 93, 93]), (signal.SIGTERM, [143, 143, 143])],
)
def test_a_rank_0_that_is_ended_is_no_pass(
    gate: Gate, number: signal.Signals, codes: list[int]
) -> None:
    running = start_all(gate, HANGING, standin="hang:shm")
    gate.mark()
    running[0].send(number)
    ran = [one.end(30) for one in running]
    assert [one.code for one in ran] == codes
    assert not any("RANK" in one.stdout for one in ran)
    if number is signal.SIGKILL:
        assert all("before its gate came to a verdict" in one.stderr for one in ran[1:])
    gate.assert_nothing_left()


def test_a_signal_ends_a_rank_that_waits_and_leaves_the_others_reports(gate: Gate) -> None:
    running = start_all(gate, HANGING, standin="hang:shm")
    gate.mark()
    ran = running[1].send(signal.SIGTERM).end(10)
    assert ran.code == 143 and not ran.report["complete"]  # rank 0 is still at it
    (gate.folder / "mark.go").touch()
    ran = [running[n].end() for n in (0, 2)]
    assert {one.code for one in ran} <= {7, 91} and len({one.code for one in ran}) == 1
    assert ran[0].report["complete"] and ran[0].report["exit_code"] in (0, 1)


SHORT = (
    sys.executable, "-c",
    "from preflight import ranks\nranks.APPEAR_LIMIT_S = ranks.LATE_LIMIT_S = 0.3\n"
    "from preflight.__main__ import main\nmain()",
)  # fmt: skip


def test_the_pass_of_an_earlier_start_lets_nobody_through(gate: Gate) -> None:
    env = ranks_of(2)
    both = [start(gate, PASSING, "true", env=env(number)) for number in (0, 1)]
    assert [running.end().code for running in both] == [0, 0]
    ran = run(gate, PASSING, "echo", "started", env=env(1), command=SHORT)
    assert (ran.code, ran.stdout) == (93, "")
    assert "local rank 0 did not start" in ran.stderr and len(ran.stderr.splitlines()) == 1


def test_rank_0_starts_without_ranks_that_never_ask(gate: Gate) -> None:
    ran = run(gate, (*PASSING, "-q"), "echo", "now", env=ranks_of(8)(0), command=SHORT)
    assert ran.code == 0 and ran.stdout.endswith("now\n")
    assert "7 local ranks never asked" in ran.stderr


@pytest.mark.parametrize("broken", [False, True])
def test_a_gate_told_to_end_waits_for_no_rank(gate: Gate, broken: bool) -> None:
    how = "missing:pydantic" if broken else "hang:import"
    running = start(gate, PASSING, "true", env=ranks_of(8)(0), standin=how)
    if broken:
        running.wait_for("nothing is decided")
        wait_until((gate.reports / "preflight.xml").exists, bool)
    else:
        gate.mark()
    wait_until(lambda: guarded(running), bool)
    assert running.send(signal.SIGTERM).end(20).code == 143  # it would be thirty seconds


def guarded(running: Running) -> bool:
    """Whether SIGTERM is caught."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    found = re.search(r"SigCgt:\s*([0-9a-f]+)", status)
    return found is not None and bool(int(found[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_rank_that_is_no_number_is_said(gate: Gate) -> None:
    ran = run(gate, PASSING, "echo", "started", env={"LOCAL_RANK": "first"})
    assert (ran.code, ran.stdout) == (93, "")
    assert "LOCAL_RANK is 'first'" in ran.stderr and ran.report["exit_code"] == 3


def test_without_a_command_a_rank_means_nothing(gate: Gate) -> None:
    ran = gate.run(*PASSING, env=ranks_of(4)(1))
    assert_one_verdict(ran, 0)
