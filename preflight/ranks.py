"""One gate per node: local rank 0 measures, the other local ranks wait for its verdict.

They meet at an abstract Unix socket that rank 0 listens on for as long as it gates. Such a name
is no file: it belongs to this node's network namespace, needs no writable folder, and the kernel
takes it away at any end of rank 0. So there is no old verdict to find, nothing to clean up, and a
rank 0 that dies is noticed at once. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

APPEAR_LIMIT_S = 60.0
"""How much later than the others rank 0 may start: cold imports from network file systems."""
LATE_LIMIT_S = 30.0
"""How long rank 0, its verdict found, waits for ranks that have not asked yet."""
_TAKEN_LIMIT_S = 5.0  # the rank 0 of the start before is still being killed
_TICK_S = 0.1
_LAST_WORD_BYTES = 4096

# What differs between two jobs on a node, two launchers of one job, and two starts of one launcher.
_START = (
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK",
)  # fmt: skip


class Unshared(Exception):
    """The verdict cannot come from, or go to, the other local ranks; the text says why."""


@dataclass(frozen=True)
class Verdict:
    """What rank 0 tells: how its gate ended, and whether the command may start."""

    code: int
    starts: bool


@dataclass(frozen=True)
class Place:
    """Where this process stands among those that the launcher started on this node."""

    rank: int
    size: int | None
    """Local ranks, None where the launcher does not say."""
    name: bytes
    """The socket's name, the same in all of them and in no other start."""


def place(environ: Mapping[str, str]) -> Place | None:
    """Which local rank this is, by torchrun's variables or Slurm's; None for a process alone.

    torchrun's come first: inside `srun torchrun` they are the inner launcher's. Slurm's count only
    within a step: a batch script has a SLURM_LOCALID too, and runs once.

    Raises:
        Unshared: the rank is not a number.
    """
    in_step = "SLURM_STEP_ID" in environ and "SLURM_LOCALID" in environ
    variable = "LOCAL_RANK" if "LOCAL_RANK" in environ else "SLURM_LOCALID"
    if variable == "SLURM_LOCALID" and not in_step:
        return None
    rank, size = _number(environ[variable]), _number(environ.get("LOCAL_WORLD_SIZE"))
    if rank is None:
        raise Unshared(f"{variable} is {environ[variable]!r}, which is no rank: unset it")
    # LOCAL_RANK may be a copy that the job's script made of SLURM_LOCALID.
    if variable == "SLURM_LOCALID" or (size is None and in_step):
        size = _tasks_here(environ)
    if rank == 0 and size == 1:
        return None
    start = "\n".join(f"{name}={environ.get(name, '')}" for name in _START)
    digest = hashlib.sha256(start.encode(errors="surrogateescape")).hexdigest()[:32]
    return Place(rank, size, f"\0preflight-{os.geteuid()}-{digest}".encode())


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _tasks_here(environ: Mapping[str, str]) -> int | None:
    """Tasks of a Slurm step on this node: "4(x2),3" is 4 on two nodes, then 3 on one."""
    node = _number(environ.get("SLURM_NODEID"))
    counts: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        tasks, _, times = part.rstrip(")").partition("(x")
        count, nodes = _number(tasks), _number(times or "1")
        if count is None or nodes is None:
            return None
        counts += [count] * nodes
    return counts[node] if node is not None and node < len(counts) else None


class Door:
    """Rank 0's side. It only listens while the gate measures: the kernel keeps who comes."""

    def __init__(self, place: Place) -> None:
        """Open it.

        Raises:
            Unshared: the name is taken, by another start with the same ids or by another user.
        """
        self._expected = None if place.size is None else place.size - 1
        self._opened = time.monotonic()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            try:
                self._listening.bind(place.name)
                break
            except OSError as error:
                if time.monotonic() > self._opened + _TAKEN_LIMIT_S:
                    raise Unshared(
                        f"local rank 0 cannot tell the other ranks its verdict ({error.strerror}): "
                        "another start with the same job id, port and restart count gates here "
                        "now; wait for it, or give this one a MASTER_PORT of its own"
                    ) from None
                time.sleep(_TICK_S)
        self._listening.listen(4096)

    def tell(self, verdict: Verdict, stopped: Callable[[], bool]) -> int | None:
        """Tell every rank that asked or still comes, then close. Returns how many never came.

        None where the launcher does not say how many there are: then the door stays open for
        LATE_LIMIT_S after it was opened, else for at most as long after the verdict. `stopped`
        says that this process was told to end: nobody is waited for then.
        """
        line = json.dumps({"code": verdict.code, "starts": verdict.starts}).encode() + b"\n"
        known = self._expected is not None
        until = (time.monotonic() if known else self._opened) + LATE_LIMIT_S
        told = 0
        self._listening.setblocking(False)
        with self._listening, selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            while told != self._expected:
                with contextlib.suppress(BlockingIOError):
                    told += self._answer(line)
                    continue
                if stopped() or time.monotonic() >= until:
                    break
                selector.select(_TICK_S)
        return None if self._expected is None else self._expected - told

    def _answer(self, line: bytes) -> int:
        asking, _ = self._listening.accept()
        with asking:
            if _user(asking) != os.geteuid():
                return 0
            with contextlib.suppress(OSError):  # it died while it waited: nobody is left to tell
                asking.sendall(line)
        return 1


def wait_for_rank_0(place: Place) -> Verdict:
    """Wait at rank 0's door; at most APPEAR_LIMIT_S for it to open, then as long as rank 0 lives.

    The gate has its own deadline, and its end, whatever kind it is, ends this.

    Raises:
        Unshared: rank 0 never came, died before its verdict, or is somebody else's process.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        _knock(asking, place)
        if (user := _user(asking)) != os.geteuid():
            raise Unshared(f"a process of user {user} poses as this job's local rank 0")
        said = b""
        with contextlib.suppress(ConnectionError):
            while not said.endswith(b"\n") and len(said) < _LAST_WORD_BYTES:
                if not (more := asking.recv(_LAST_WORD_BYTES)):
                    break
                said += more
    if not said.endswith(b"\n"):
        raise Unshared("local rank 0 ended before its gate came to a verdict; its output says why")
    answer = json.loads(said)
    return Verdict(int(answer["code"]), answer["starts"] is True)


def _knock(asking: socket.socket, place: Place) -> None:
    until, pause = time.monotonic() + APPEAR_LIMIT_S, 0.05
    while True:
        try:
            asking.connect(place.name)
            return
        except ConnectionRefusedError:
            if time.monotonic() >= until:
                raise Unshared(
                    f"local rank 0 did not start its gate within {APPEAR_LIMIT_S:.0f} s: every "
                    "local rank has to run the same `preflight run ... -- CMD`, in one container "
                    "or in none"
                ) from None
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)


def _user(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, user, _group = struct.unpack("3i", credentials)
    return int(user)
