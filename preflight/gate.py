"""One run from options to exit code: plan, measure, deliver. The only place that knows all parts.

It prints nothing: notes and progress go to the caller's functions. Whatever happens after the
first report was written, a last one is written that says so.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from preflight import __version__, exit_code
from preflight.checks.contract import Unavailable
from preflight.deliver import Delivery, Undeliverable
from preflight.isolate import Stop
from preflight.machine.identity import node
from preflight.machine.root import Root, host
from preflight.model import Node, Report, Result, SettingsRecord
from preflight.outcome import Outcome, worst
from preflight.plan import Plan, UsageError
from preflight.prepare import Preparation
from preflight.report import FORMATS
from preflight.report.headline import headline, reason
from preflight.run_options import Options, Talk
from preflight.runner import Runner, not_reached
from preflight.settings import Settings
from preflight.settings.tree import SettingsError

_TERMINATION_LOG = Path("/dev/termination-log")
_TERMINATION_BYTES = 4096  # kubelet cuts longer messages


class Gate:
    """One run."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        stop: Stop,
        talk: Talk,
        warnings: Sequence[str] = (),
        *,
        leaves_message: Callable[[int], bool] = lambda code: True,
    ) -> None:
        """`leaves_message` of an exit code: Kubernetes gets it, as the container's last word."""
        self._options, self._environ, self._stop, self._talk = options, environ, stop, talk
        self._began = time.monotonic()
        self._started_at = datetime.now(timezone.utc)
        self._machine: Root = host()
        self._leaves_message = leaves_message
        self._delivery: Delivery | None = None
        self._delivered = False
        self._report = Report(
            preflight_version=__version__, complete=False, outcome=Outcome.ERROR,
            exit_code=exit_code.UNDECIDED, reason=None,
            started_at=self._started_at.strftime("%Y-%m-%dT%H:%M:%SZ"), duration_s=0.0,
            node=Node(name="", name_from="", hostname=""), facts={},
            settings=SettingsRecord(options=options.record(), warnings=tuple(warnings)), results=(),
        )  # fmt: skip

    def run(self) -> Report:
        """Run it. Errors of use come back as a report with exit code 2, never as an exception."""
        try:
            self._report = self._updated(node=node(self._machine, self._environ))
            self._open_delivery()
            self._deliver()  # at once: an old pass must not outlive whatever ends us from here on
            plan = self._plan()
            spent_s = time.monotonic() - self._began
            self._stagger()  # waiting for the fleet is not the check's time
            self._report = self._updated(results=tuple(map(not_reached, plan.planned)))
            self._deliver()
            results = Runner(
                plan, self._machine, self._stop, self._publish_so_far, self._talk.progress, spent_s
            ).run()
            self._report = self._finished(results)
        except (UsageError, SettingsError) as error:
            self._report = self._ended(exit_code.USAGE, str(error))
        except Unavailable as reason:
            self._report = self._ended(exit_code.UNDECIDED, str(reason))
        except Exception as error:
            text = f"preflight itself failed ({type(error).__name__}: {error}): nothing is decided"
            self._report = self._ended(exit_code.UNDECIDED, text)
        self._deliver()
        if self._leaves_message(self._report.exit_code):
            self._write_termination_message()
        if self._delivery is not None:
            self._delivery.close()
        return self._report

    def _plan(self) -> Plan:
        prepare = Preparation(
            self._options, self._environ, self._machine, self._stop, self._talk.progress
        )
        # Step by step, so that a report of a run that ends here holds what is known by then.
        self._report = self._updated(settings=self._settings_record(prepare.settle()))
        facts = prepare.look()
        self._report = self._updated(
            facts=facts.model_dump(mode="json", by_alias=True),
            settings=self._settings_record(prepare.settings, prepare.notes),
        )
        if facts.cpu.request_ignored is not None:
            self._warn(facts.cpu.request_ignored)
        return prepare.plan()

    def _stagger(self) -> None:
        """Wait a part of --stagger that differs from node to node, so that a fleet spreads out."""
        if self._options.stagger_s <= 0:
            return
        share = secrets.randbelow(1_000) / 1_000
        until = time.monotonic() + share * self._options.stagger_s
        self._talk.progress("stagger", f"waiting {share * self._options.stagger_s:.0f} s")
        while time.monotonic() < until and self._stop.signal is None:
            time.sleep(0.05)

    def _settings_record(self, settings: Settings, notes: Sequence[str] = ()) -> SettingsRecord:
        return SettingsRecord(
            layers=settings.layers,
            options={**self._options.record(), "deadline_s": settings.run.deadline_s},
            warnings=(*self._report.settings.warnings, *notes),
            values=dict(settings.values),
        )

    # -- the report -----------------------------------------------------------------------------

    def _publish_so_far(self, results: Sequence[Result]) -> None:
        done = {result.check: result for result in results}
        rest = (done.get(old.check, old) for old in self._report.results)
        self._report = self._updated(results=tuple(rest))
        self._deliver()

    def _finished(self, results: Sequence[Result]) -> Report:
        options = self._options
        code = exit_code.decide(
            results, exit_on=options.exit_on, report_only=options.report_only,
            allow_undecided=options.allow_undecided, stopped_by=self._stop.signal,
        )  # fmt: skip
        outcome = worst(result.outcome for result in results)
        report = self._updated(
            complete=True, outcome=outcome, exit_code=code, results=tuple(results)
        )
        if self._stop.signal is not None:
            return report.model_copy(update={"reason": f"stopped by {self._stop.signal.name}"})
        return report.model_copy(update={"reason": reason(report) or None})

    def _ended(self, code: int, text: str) -> Report:
        """A run that ended outside the runner: wrong use, or a fault of our own."""
        options = self._options
        if code == exit_code.UNDECIDED:
            code = exit_code.lowered(code, options.report_only, options.allow_undecided)
            if self._stop.signal is not None:
                code = exit_code.interrupted(self._stop.signal)
        return self._updated(complete=True, outcome=Outcome.ERROR, exit_code=code, reason=text)

    def _updated(self, **changes: Any) -> Report:
        changes["duration_s"] = round(time.monotonic() - self._began, 3)
        return self._report.model_copy(update=changes)

    def _open_delivery(self) -> None:
        folder = self._options.report_dir
        if folder is None:
            return
        delivery = None
        try:
            delivery = Delivery(folder)
            delivery.wait_ready()
        except (Undeliverable, OSError) as error:
            if delivery is not None:
                delivery.close()
            if self._options.report_dir_required:
                raise UsageError(
                    f"--report-dir {error}: no report could be written there"
                ) from None
            self._lost(str(error))
            return
        self._delivery = delivery

    def _deliver(self) -> None:
        if self._delivery is None:
            return
        try:
            self._delivery.write(
                {
                    "preflight.json": FORMATS["json"](self._report),
                    "preflight.xml": FORMATS["junit"](self._report),
                }
            )
            self._delivered = True
        except Exception as error:
            if not self._delivered and not isinstance(error, Undeliverable):
                raise  # nothing can be drawn here: the last words replace what an old run left
            # Later a report that cannot be drawn must not cost the verdict.
            self._delivery.close()
            self._delivery = None
            known = isinstance(error, Undeliverable)
            self._lost(str(error) if known else f"{type(error).__name__}: {error}")

    def _lost(self, text: str) -> None:
        self._warn(
            f"reports are lost: {text}; the verdict is on standard output and in the exit code"
        )

    def _warn(self, line: str) -> None:
        self._talk.note(line)
        warnings = (*self._report.settings.warnings, line)
        record = self._report.settings.model_copy(update={"warnings": warnings})
        self._report = self._updated(settings=record)

    def _write_termination_message(self) -> None:
        """Kubernetes shows it with the pod; elsewhere the file does not exist."""
        try:
            if _TERMINATION_LOG.is_file():
                text = headline(self._report).encode()[:_TERMINATION_BYTES]
                _TERMINATION_LOG.write_bytes(text)
        except OSError as error:
            self._talk.note(f"{_TERMINATION_LOG} could not be written: {error.strerror}")
