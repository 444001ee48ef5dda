"""How fast whole files come off storage: reader processes over a list of paths, timed in blocks.

Each reader is a small process without torch (`preflight.measure.reader`), and together they read as
a loader's workers do: random order, each file once. Their counts are watched here and become blocks
and a rate; how the pages got into memory is reported, never judged.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from preflight.diagnosis.data_paths import ANSWER_LIMIT_S
from preflight.facts import Cpu
from preflight.job import Stats
from preflight.machine.root import Root
from preflight.measure import reader as words
from preflight.measure.fetch_window import FetchWindow, rate_of
from preflight.measure.reader import SLOT_WORDS
from preflight.measure.reader_set import ReaderSet
from preflight.measure.stopping import Block, Decision
from preflight.model import Rate

# Between two looks at the readers' counts: a few microseconds each, so that a folder that is read
# in a fifth of a second still gives blocks.
_TICK_S = 0.01
_LET_GO_S = 5.0

Ended = Literal["decided", "time", "files", "bytes", "no_answer"]
"""A clear verdict, the pass's time, no file left unread, its bytes, a storage that went silent."""


@dataclass(frozen=True)
class FetchResult:
    """What one pass over the files came to."""

    rate: Rate | None
    """Samples per second of all readers; None when no file was read."""
    decision: Decision | None
    """None where no limit was given, or too little was seen for the stopping rule."""
    blocks: tuple[Block, ...]
    disturbed_share: float | None
    """Time-weighted; None where the host hides it, or the pass was too short to tell."""
    ended: Ended
    samples: int
    bytes_read: int
    seconds: float
    gb_per_s: float | None
    """10^9 bytes per second of all readers."""
    opens_per_s: float | None
    """Files per second that the readers would open if they did nothing else."""
    hit_percent: float | None
    """Bytes that did not come from a block device; None where this process cannot tell."""
    cpu_ms_per_sample: float | None
    errors: int
    """Files that could not be read."""
    brought_in: int
    """Files whose pages this pass brought into memory."""


class Readers:
    """A set of reader processes over some files; a context manager that ends them."""

    def __init__(
        self,
        paths: Sequence[str],
        readers: int,
        *,
        machine: Root,
        cpu: Cpu,
        stats: Stats,
        seed: int,
    ) -> None:
        """Start min(readers, files) processes. Raises OSError where none can be started.

        Args:
            paths: the files; at least one.
            readers: processes that read at once.
            machine: for who used the CPUs meanwhile.
            cpu: the effective CPUs, for the blocks' disturbance.
            stats: block length and error probabilities.
            seed: draws the order of the files.
        """
        self._machine, self._cpu, self._stats = machine, cpu, stats
        order = [os.fsencode(path) for path in paths]
        random.Random(seed).shuffle(order)
        count = min(readers, len(paths))
        self._set = ReaderSet([order[number::count] for number in range(count)])
        self.count = count

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *error: object) -> None:
        self._set.close()

    def first_touch(
        self,
        seconds: float,
        *,
        limit_samples_per_s: float | None = None,
        pace_samples_per_s: float | None = None,
        max_bytes: int,
        evict: bool = False,
        note: Callable[[int, float], None] = lambda samples, seconds: None,
    ) -> FetchResult:
        """Read each file once, for `seconds` at most, or until the limit is clearly met or missed.

        Args:
            seconds: at most.
            limit_samples_per_s: None: no verdict, the whole time is used.
            pace_samples_per_s: no more than so many, all readers together.
            max_bytes: no more than so many, cached or not.
            evict: advise each file out of memory before it is read.
            note: called every block with samples read and seconds gone.
        """
        return self._pass("first", seconds, limit_samples_per_s, pace_samples_per_s, max_bytes,
                          evict, note)  # fmt: skip

    def again(
        self, seconds: float, *, pace_samples_per_s: float | None = None, max_bytes: int
    ) -> FetchResult:
        """Read what `first_touch` has read again, from its first file on, for `seconds`."""
        return self._pass("again", seconds, None, pace_samples_per_s, max_bytes, False,
                          lambda samples, seconds: None)  # fmt: skip

    def let_go(self) -> int:
        """Advise the pages that `first_touch` brought in out of memory again.

        Returns how many files; fewer than were brought in where it takes over five seconds.
        """
        before, passes = self._set.total(words.LET_GO), self._set.column(words.PASSES)
        self._set.order("let_go")
        self._wait(passes, _LET_GO_S)
        self._set.stop()
        return self._set.total(words.LET_GO) - before

    def _pass(
        self,
        name: str,
        seconds: float,
        limit: float | None,
        pace: float | None,
        max_bytes: int,
        evict: bool,
        note: Callable[[int, float], None],
    ) -> FetchResult:
        before = self._columns()
        window = FetchWindow(
            self._machine, self._cpu, self._stats, limit, self.count, self._pids, seconds
        )
        until = sum(before[words.BYTES]) + max_bytes
        pace_ns = round(1e9 / pace) if pace else 0
        self._set.order(f"{name} {pace_ns} {until} {int(evict)}")
        silence_s = 2 / pace if pace else 0.0
        ended = self._watch(before, window, seconds, silence_s, note)
        self._set.stop()
        last_files_s = self._stats.no_batch_s
        if ended != "no_answer" and not self._wait(before[words.PASSES], last_files_s):
            ended = "no_answer"
        return self._result(before, window, ended)

    def _watch(
        self,
        before: Sequence[Sequence[int]],
        window: FetchWindow,
        seconds: float,
        silence_s: float,
        note: Callable[[int, float], None],
    ) -> Ended:
        """Look at the counts until the pass is over."""
        began = heard = time.monotonic()
        state: Any = None
        already = sum(before[words.FINISHED])
        while True:
            time.sleep(_TICK_S)
            now = time.monotonic()
            self._set.raise_if_dead()
            finished, reading = self._set.total(words.FINISHED), self._set.column(words.READING)
            if state != (state := (finished, reading, self._set.total(words.ERRORS))):
                heard = now
            done = list(map(int.__ne__, self._set.column(words.PASSES), before[words.PASSES]))
            if all(done):
                return "files"
            if self._set.column(words.BEGAN_NS) == before[words.BEGAN_NS]:
                continue
            # Once a reader has nothing left, the others alone are no measure.
            if not any(done) and window.add(now, finished - already):
                note(finished - already, now - began)
            if window.decision is not None:
                return "decided"
            if now - began >= seconds:
                return "time"
            # A large file may take its time; what does not even open has no excuse.
            limit_s = self._stats.no_batch_s if any(reading) else ANSWER_LIMIT_S
            if now - heard > limit_s + silence_s:
                return "no_answer"

    def _result(
        self,
        before: Sequence[Sequence[int]],
        window: FetchWindow,
        ended: Ended,
    ) -> FetchResult:
        after = self._columns()

        def gained(word: int) -> int:
            return sum(after[word]) - sum(before[word])

        samples, read = gained(words.FINISHED), gained(words.BYTES)
        if ended == "files" and gained(words.SPENT):
            ended = "bytes"
        # By reader, because some are done before others when there is nothing left to read.
        spans = [
            (done - did, (last - first) / 1e9)
            for did, done, first, last in zip(
                before[words.FINISHED], after[words.FINISHED], after[words.BEGAN_NS],
                after[words.LAST_NS], strict=True,
            )
            if done > did
        ]  # fmt: skip
        counted = sum(number / span for number, span in spans)
        seconds = max((span for _, span in spans), default=0.0)
        rate = rate_of(window.close(ended in ("files", "bytes")), self._stats, counted)
        open_s = gained(words.OPEN_NS) / 1e9
        accounted = "read_bytes:" in (self._machine.read_text("/proc/self/io") or "")
        from_disk = gained(words.DISK_BYTES)
        return FetchResult(
            rate=(window.decision and window.decision.rate) or (rate if samples else None),
            decision=window.decision,
            blocks=tuple(window.blocks),
            disturbed_share=window.disturbed_share,
            ended=ended,
            samples=samples,
            bytes_read=read,
            seconds=seconds,
            gb_per_s=counted * read / samples / 1e9 if samples else None,
            opens_per_s=self.count * samples / open_s if open_s > 0 else None,
            hit_percent=100 * (1 - min(from_disk, read) / read) if read and accounted else None,
            cpu_ms_per_sample=gained(words.CPU_NS) / 1e6 / samples if samples else None,
            errors=gained(words.ERRORS),
            brought_in=gained(words.BROUGHT_IN),
        )

    def _pids(self) -> list[int]:
        return [os.getpid(), *self._set.pids]

    def _columns(self) -> list[list[int]]:
        return [self._set.column(word) for word in range(SLOT_WORDS)]

    def _wait(self, passes: Sequence[int], seconds: float) -> bool:
        """Wait for the readers to end their pass; false when one does not come back."""
        deadline = time.monotonic() + seconds
        while any(map(int.__eq__, self._set.column(words.PASSES), passes)):
            self._set.raise_if_dead()
            if time.monotonic() > deadline:
                return False
            time.sleep(_TICK_S)
        return True
