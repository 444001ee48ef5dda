"""Has a child import what --dataset names, before anything is measured.

What is wrong with the module is wrong use; an import that hangs or crashes decides nothing.
"""

from __future__ import annotations

import secrets

from preflight.checks.contract import Unavailable
from preflight.isolate import START_LIMIT_S, Stop, run
from preflight.job import Job
from preflight.plan import UsageError
from preflight.scratch import Scratch
from preflight.user_code import UserCodeError, environment, parse

_LINES_TOLD = 3


def check_spec(spec: str) -> None:
    """Refuse what is no MODULE:FACTORY. Raises UsageError."""
    try:
        parse(spec)
    except UserCodeError as error:
        raise UsageError(f"--dataset {spec}: {error}") from None


def try_import(job: Job, spec: str, stop: Stop, total_s: float) -> None:
    """Import it, and end.

    Raises:
        UsageError: there is no such module or name, importing it raises, or it is no factory.
        Unavailable: the import hung or crashed.
    """
    option = f"--dataset {spec}"
    scratch = Scratch(secrets.token_hex(4))
    request = {
        "task": "dataset", "spec": spec, "variables": environment(job, 0), "scratch": scratch.token,
    }  # fmt: skip
    try:
        ended = run(request, timeout_s=START_LIMIT_S, total_s=total_s, stop=stop)
    finally:
        scratch.remove()
    if ended.kind == "stopped":
        return
    printed = _last_lines(ended.output)
    if ended.kind == "done":
        if ended.answer["error"] is not None:
            raise UsageError(f"{option}: {ended.answer['error']}{printed}")
        return
    if ended.kind == "timeout":
        what = f"importing it took more than {ended.seconds:.0f} s"
        remedy = "look at what it does when it is imported: a download, a lock, a slow file system"
    elif ended.kind == "died":
        signal = f" (signal {ended.exit_signal})" if ended.exit_signal else ""
        what = f"importing it ended the process{signal}"
        remedy = "import it by hand with python -X faulthandler"
    else:
        what = f"it could not be imported: {ended.text}"
        remedy = "import it by hand"
    raise Unavailable(f"{option}: {what}; {remedy}{printed}")


def _last_lines(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"; it printed last: {' | '.join(lines[-_LINES_TOLD:])}" if lines else ""
