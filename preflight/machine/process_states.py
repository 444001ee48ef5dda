"""What a process is doing at this moment: on a CPU, or waiting in which kind of system call.

Readable without privilege for one's own children: /proc/PID/stat, and /proc/PID/syscall where
the kernel lets a parent trace them. What a share of such looks means is said elsewhere.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from preflight.machine.kernel_text import integer
from preflight.machine.root import Root

Doing = Literal["running", "socket", "lock", "sleep", "poll", "pipe", "disk", "other"]

# Of the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h)
# by what a process waits for in them. "descriptor" calls wait for whatever their first argument is
# open on. The names above each row hold for the other machine, too, as far as it has such calls.
_CALLS: dict[str, dict[str, tuple[int, ...]]] = {
    "x86_64": {
        # read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 sendfile
        "descriptor": (0, 1, 19, 20, 17, 18, 295, 296, 327, 328, 40),
        # recvfrom recvmsg recvmmsg sendto sendmsg sendmmsg connect accept accept4
        "socket": (45, 47, 299, 44, 46, 307, 42, 43, 288),
        # poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2
        "poll": (7, 271, 23, 270, 232, 281, 441),
        # futex futex_waitv futex_wait fcntl flock semop semtimedop
        "lock": (202, 449, 455, 72, 73, 65, 220),
        # nanosleep clock_nanosleep
        "sleep": (35, 230),
        # open openat openat2 stat fstat lstat newfstatat statx access faccessat faccessat2 getdents
        # getdents64 readlink readlinkat lseek fsync fdatasync io_getevents
        "disk": (
            2, 257, 437, 4, 5, 6, 262, 332, 21, 269, 439, 78, 217, 89, 267, 8, 74, 75, 208,
        ),
    },
    "aarch64": {
        "descriptor": (63, 64, 65, 66, 67, 68, 69, 70, 286, 287, 71),
        "socket": (207, 212, 243, 206, 211, 269, 203, 202, 242),
        "poll": (73, 72, 22, 441),
        "lock": (98, 449, 455, 25, 32, 193, 192),
        "sleep": (101, 115),
        "disk": (56, 437, 80, 79, 291, 48, 439, 61, 78, 62, 82, 83, 4),
    },
}  # fmt: skip
_KINDS = {
    machine: {number: kind for kind, numbers in kinds.items() for number in numbers}
    for machine, kinds in _CALLS.items()
}
# /proc/PID/stat after the command's closing bracket (proc_pid_stat(5)).
_STATE, _MAJOR_FAULTS = 0, 9
_PAGE_FAULT = -1


class Look(NamedTuple):
    """One look at one process."""

    doing: Doing | None
    """None: it waits, and for what is hidden."""
    uninterruptible: bool
    """The state D: nearly always a disk, or a file server."""


class Call(NamedTuple):
    """The system call that a process waits in."""

    number: int
    """-1: it is in the kernel without a call, as for a page that is read in."""
    argument: int


def look(root: Root, pid: int, machine: str) -> Look | None:
    """What the first thread of `pid` does; None when it is gone. `machine` is uname's."""
    state = parse_state(root.read_text(f"/proc/{pid}/stat"))
    if state is None or state in "ZX":
        return None
    waits = state in "SD"
    text = root.read_text(f"/proc/{pid}/syscall") if waits else "running"
    call = parse_syscall(text)
    if call == "running":
        return Look("running", False)
    target = None
    if call is not None and _KINDS.get(machine, {}).get(call.number) == "descriptor":
        target = root.link(f"/proc/{pid}/fd/{call.argument}")
    return Look(doing(state, call, target, machine), state == "D")


def doing(state: str, call: Call | None, target: str | None, machine: str) -> Doing | None:
    """What a process in the state S or D waits for.

    Args:
        state: the letter of /proc/PID/stat.
        call: where it waits; None where that is hidden.
        target: what the call's descriptor is open on, as /proc/PID/fd/N names it.
        machine: uname's, which numbers the calls; of an unknown one only the state is understood.
    """
    if call is None or machine not in _KINDS:
        return "disk" if state == "D" else None
    if call.number == _PAGE_FAULT:
        return "disk" if state == "D" else "other"
    kind = _KINDS[machine].get(call.number, "other")
    if kind == "descriptor":
        kind = _of_descriptor(target)
    if kind == "other" and state == "D":
        kind = "disk"
    return kind  # type: ignore[return-value]


def parse_state(stat: str | None) -> str | None:
    """The state's letter: R running or runnable, S sleeping, D uninterruptible, Z ended."""
    fields = _fields(stat)
    return fields[_STATE] if fields and len(fields[_STATE]) == 1 else None


def parse_major_faults(stat: str | None) -> int | None:
    """Pages that had to be read in, of all threads, since the process began."""
    fields = _fields(stat)
    return integer(fields[_MAJOR_FAULTS]) if len(fields) > _MAJOR_FAULTS else None


def parse_syscall(text: str | None) -> Call | Literal["running"] | None:
    """/proc/PID/syscall (proc_pid_syscall(5)); None for anything else, as where it is forbidden."""
    words = (text or "").split()
    if words == ["running"]:
        return "running"
    number = integer(words[0]) if words else None
    if number is None:
        return None
    try:
        argument = int(words[1], 16) if len(words) > 3 else 0
    except ValueError:
        return None
    return Call(number, argument & 0xFFFFFFFF)


def major_faults(root: Root, pids: list[int]) -> int | None:
    """Of all these together; None where none can be asked."""
    known = [parse_major_faults(root.read_text(f"/proc/{pid}/stat")) for pid in pids]
    counted = [faults for faults in known if faults is not None]
    return sum(counted) if counted else None


def _fields(stat: str | None) -> list[str]:
    """Behind the command, which may hold spaces and brackets: its last bracket ends it."""
    _, bracket, fields = (stat or "").rpartition(")")
    return fields.split() if bracket else []


def _of_descriptor(target: str | None) -> str:
    if target is None:
        return "other"
    if target.startswith("socket:"):
        return "socket"
    if target.startswith("pipe:"):
        return "pipe"
    return "disk" if target.startswith("/") else "other"
