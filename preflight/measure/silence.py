"""Why a loader gives nothing: asks its workers where they stand, and reads what they have noted.

Only for a loader that has failed already: the signal that asks interrupts whatever a worker waits
in. It says what was seen in sentences; which outcome that has, the tables of failures say.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter

from torch import multiprocessing

from preflight.checks.contract import Failed
from preflight.measure.loader import OpenLoader
from preflight.measure.telling import ANSWERS, ASK, ITEM, LOST, Telling
from preflight.stacks import place

_ANSWER_S = 0.5
_SETTLED_S = 0.05
_ALL_S = 3.0
_POLL_S = 0.01
_KEPT_LINES = 8  # of a stack: what is beneath is torch's and ours

_LOOK = (
    "see what that line waits for (a file, a server, a lock, a download): run it alone with "
    "num_workers=0"
)


class Silence:
    """What is known of the workers of one loader."""

    def __init__(self, opened: OpenLoader) -> None:
        loader, init = opened.torch_loader, opened.torch_loader.worker_init_fn
        self._opened = opened
        self._notes = init.notes if isinstance(init, Telling) else None
        self._workers = opened.workers
        context = loader.multiprocessing_context or multiprocessing
        self._threads = opened.threads if context.get_start_method() == "fork" else ()

    def from_the_start(self, waited_s: float, consumer: threading.Thread) -> Failed:
        """No batch has come: the failure in words. Without workers the consumer loads itself."""
        size = f" of {self._opened.batch_size}" if self._opened.batch_size else ""
        who = "a loader without workers"
        if self._workers:
            who = f"{self._workers} living worker{'s' * (self._workers > 1)}"
        return self._failed("NoBatch", f"{who} gave no batch{size} in {waited_s:.0f} s", consumer)

    def for_good(self, consumer: threading.Thread) -> Failed:
        """Batches have stopped coming, until torch's time limit: the failure in words."""
        timeout_s = self._opened.torch_loader.timeout
        return self._failed(
            "LoaderSilent", f"the loader gave no batch for {timeout_s:g} s", consumer
        )

    def shm_need_gib(self, ranks: int) -> float | None:
        """What the job's own batches take of /dev/shm, as far as workers have said their size."""
        said = dict(line.split() for line in self._lines(ITEM) if not line.endswith(" 0"))
        sample, batch = (said.get(name) for name in ("sample", "batch"))
        return self._opened.shm_need_gib(
            int(sample) if sample else None, int(batch) if batch else None, ranks
        )

    def _failed(self, kind: str, what: str, consumer: threading.Thread) -> Failed:
        where, _, remedy = self._where(consumer).partition("\n")
        if not remedy and self._opened.kind is None:
            remedy = "read the files from the node by hand; look at `dmesg` for I/O errors"
        return Failed(kind, f"{what}: {where}" if where else what, remedy)

    def lost_batch(self) -> str | None:
        """The error with which a worker could not send a batch; the loader will wait for ever."""
        lines = self._lines(LOST)
        return lines[0] if lines else None

    def _where(self, consumer: threading.Thread) -> str:
        """What the workers are at, and in a second line what to do; empty when nothing is known."""
        if not self._workers:
            return self._sentence(Counter([_of_thread(consumer)]), "the loader's process")
        answers: Counter[str | None] = Counter()
        silent: list[int] = []
        until = time.monotonic() + _ALL_S
        for pid in self._pids():
            if time.monotonic() >= until:
                break
            text = self._ask(pid)
            if text is None:
                silent.append(pid)
            else:
                answers[place(text)] += 1
        if silent and not any(answers):
            return (
                f"{_of(len(silent), self._workers)} answer no signal: they sit in the kernel\n"
                f"read /proc/{silent[0]}/stack and dmesg: a file system or a device does not answer"
            )
        return self._sentence(answers, None)

    def _sentence(self, answers: Counter[str | None], who: str | None) -> str:
        known = Counter({place: n for place, n in answers.items() if place is not None})
        if not known:
            return ""
        ((stands_at, number),) = known.most_common(1)
        who = who or _of(number, self._workers)
        sentence = f"{who} stand{'s' * (number == 1 or not self._workers)} at {stands_at}"
        if not self._threads:
            return f"{sentence}\n{_LOOK}"
        names = ", ".join(self._threads)
        return (
            f"{sentence}; and when the workers were forked a thread was running ({names}): a lock "
            "that it held is locked in them for ever\n"
            "start no thread before the loader, or set multiprocessing_context to spawn"
        )

    def _ask(self, pid: int) -> str | None:
        """The stack of one worker; None when it does not answer. Also for the output kept."""
        assert self._notes is not None
        before, until = self._notes.size(), time.monotonic() + _ANSWER_S
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, ASK)
        size, changed_at = before, until
        while (now := time.monotonic()) < min(until, changed_at + _SETTLED_S):
            if (new := self._notes.size()) != size:
                size, changed_at = new, now
            time.sleep(_POLL_S)
        if size == before:
            return None
        text = self._notes.read(before)
        with contextlib.suppress(OSError):
            kept = "\n".join(text.splitlines()[:_KEPT_LINES])
            os.write(2, f"worker process {pid} stands here:\n{kept}\n".encode())
        return text

    def _pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self._lines(ANSWERS)][-self._workers :]

    def _lines(self, what: str) -> list[str]:
        if self._notes is None or not self._notes.size():
            return []
        head = f"{what}: "
        lines = self._notes.read().splitlines()
        return [line[len(head) :] for line in lines if line.startswith(head)]


def _of(number: int, workers: int) -> str:
    return "the worker" if number == workers == 1 else f"{number} of {workers} workers"


def _of_thread(thread: threading.Thread) -> str | None:
    frame = sys._current_frames().get(thread.ident or 0)
    lines = []
    while frame is not None:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        frame = frame.f_back
    return place("\n".join(["Thread 0x0 (most recent call first):", *lines]))
