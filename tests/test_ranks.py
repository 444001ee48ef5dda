"""Who waits for whom on a node, and that only a living rank 0 of the same start is believed."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from preflight import ranks
from preflight.ranks import Door, Place, Unshared, Verdict, place, wait_for_rank_0

pytestmark = pytest.mark.timeout(30)

TORCHRUN = {
    "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0", "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip
# As a task of a real `srun -N2 --ntasks-per-node=3` and its batch script see it (22.05).
SRUN = {
    "SLURM_JOB_ID": "2", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "2", "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "3(x2)", "SLURM_TASKS_PER_NODE": "3(x2)", "SLURM_NTASKS": "6",
}  # fmt: skip
SBATCH = {
    "SLURM_JOB_ID": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "6",
    "SLURM_TASKS_PER_NODE": "3(x2)",
}  # fmt: skip


def without(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}


@pytest.mark.parametrize(
    ("environ", "rank", "size"),
    [
        (TORCHRUN, 1, 4),
        (TORCHRUN | {"LOCAL_RANK": "0"}, 0, 4),
        (without(TORCHRUN, "LOCAL_WORLD_SIZE"), 1, None),
        (SRUN, 2, 3),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "8(x3),2", "SLURM_NODEID": "3"}, 2, 2),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "4,3(x2)"}, 2, 3),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "3"}, 2, None),  # says nothing of node 1
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "many"}, 2, None),
        (SRUN | {"LOCAL_RANK": "2"}, 2, 3),  # export LOCAL_RANK=$SLURM_LOCALID
        (SRUN | {"SLURM_LOCALID": "0"} | TORCHRUN, 1, 4),  # srun torchrun
    ],
)
def test_the_place_on_the_node(environ: dict[str, str], rank: int, size: int | None) -> None:
    found = place(environ)
    assert found is not None and (found.rank, found.size) == (rank, size)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        SBATCH,
        TORCHRUN | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        SRUN | {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"},
    ],
)
def test_a_process_alone_waits_for_nobody(environ: dict[str, str]) -> None:
    assert place(environ) is None


@pytest.mark.parametrize("rank", ["", "one", "-1", "²"])
def test_a_rank_that_is_none_is_named(rank: str) -> None:
    with pytest.raises(Unshared, match="LOCAL_RANK is"):
        place(TORCHRUN | {"LOCAL_RANK": rank})


def name(environ: Mapping[str, str]) -> bytes:
    found = place(environ)
    assert found is not None
    return found.name


@pytest.mark.parametrize("environ", [TORCHRUN, SRUN])
def test_local_ranks_share_a_name_and_no_two_starts_do(environ: dict[str, str]) -> None:
    variable = "LOCAL_RANK" if "LOCAL_RANK" in environ else "SLURM_LOCALID"
    assert name(environ) == name(environ | {variable: "0"}) == name(environ | {"RANK": "5"})
    others = [name(environ | {other: "77"}) for other in ranks._START]
    assert len({name(environ), *others}) == len(ranks._START) + 1
    assert len(name(environ)) < 108 and name(environ)[0] == 0  # abstract: no file


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Rank 0 of three, and limits that a test can wait for."""
    for limit, seconds in (("APPEAR", 0.3), ("LATE", 0.3), ("_TAKEN", 0.2)):
        monkeypatch.setattr(ranks, f"{limit}_LIMIT_S", seconds)
    yield Place(0, 3, f"\0preflight-test-{os.getpid()}-{time.monotonic_ns()}".encode())


def ask(here: Place) -> Future[Verdict]:
    done: Future[Verdict] = Future()

    def work() -> None:
        try:
            done.set_result(wait_for_rank_0(here))
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return done


def go_on() -> bool:
    return False


@pytest.mark.parametrize("verdict", [Verdict(0, True), Verdict(0, False), Verdict(1, False)])
def test_every_rank_hears_the_same_early_or_late(here: Place, verdict: Verdict) -> None:
    early = ask(here)  # before there is a door
    time.sleep(0.05)
    door = Door(here)
    with ThreadPoolExecutor() as pool:
        told = pool.submit(door.tell, verdict, go_on)
        late = ask(here)
        assert (early.result(10), late.result(10), told.result(10)) == (verdict, verdict, 0)


def test_a_verdict_is_gone_with_the_door(here: Place) -> None:
    door, asked = Door(here), [ask(here), ask(here)]
    assert door.tell(Verdict(0, True), go_on) == 0
    assert {done.result(10).code for done in asked} == {0}
    with pytest.raises(Unshared, match="did not start"):
        wait_for_rank_0(here)


def test_ranks_that_never_come_are_waited_for_and_counted(here: Place) -> None:
    assert Door(here).tell(Verdict(0, True), go_on) == 2


def test_where_their_number_is_unknown_the_door_stays_open_a_while(here: Place) -> None:
    here = Place(0, None, here.name)
    door, asked = Door(here), [ask(here) for _ in range(5)]
    assert door.tell(Verdict(1, False), go_on) is None
    assert {done.result(10).code for done in asked} == {1}


def test_nobody_is_waited_for_once_told_to_end(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "LATE_LIMIT_S", 3600)
    assert Door(here).tell(Verdict(143, False), lambda: True) == 2


def test_a_rank_that_died_while_it_waited_holds_nobody_up(here: Place) -> None:
    door = Door(here)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.connect(here.name)
    other = ask(here)
    assert door.tell(Verdict(0, True), go_on) == 0
    assert other.result(10).starts


@pytest.mark.parametrize("accepted", [False, True])
def test_a_rank_0_that_dies_is_no_pass(here: Place, accepted: bool) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(here.name)
        listening.listen()
        asked = ask(here)
        if accepted:
            listening.accept()[0].close()
        else:
            time.sleep(0.1)
    with pytest.raises(Unshared, match="before its gate came to a verdict"):
        asked.result(10)


@pytest.mark.parametrize("said", [b"", b'{"code": 0, "starts": tru', b"x" * 9000])
def test_half_an_answer_is_no_pass(here: Place, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(here.name)
        listening.listen()
        asked = ask(here)
        with listening.accept()[0] as answering, suppress(OSError):
            answering.sendall(said)
        with pytest.raises(Unshared):
            asked.result(10)


def test_a_name_that_is_taken_is_said(here: Place) -> None:
    first = Door(here)
    with pytest.raises(Unshared, match="another start with the same job id"):
        Door(here)
    first.tell(Verdict(1, False), lambda: True)
    Door(here).tell(Verdict(1, False), lambda: True)  # free again


def other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ranks._user
    monkeypatch.setattr(ranks, "_user", lambda peer: seen(peer) + 1)


def test_another_users_rank_0_is_not_believed(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(here)
    other_user(monkeypatch)
    with pytest.raises(Unshared, match=f"user {os.geteuid() + 1} poses"):
        wait_for_rank_0(here)
    door.tell(Verdict(0, True), lambda: True)


def test_another_user_is_told_nothing_and_not_counted(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Door(here)
    other_user(monkeypatch)
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(here.name)
        assert door.tell(Verdict(0, True), go_on) == 2
        assert asking.recv(100) == b""
