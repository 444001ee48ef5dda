"""Runs the staged cases and prints what each was said to be: `python -m tests.cases`.

    python -m tests.cases [--only NAME ...] [--show]

Exits 1 when a cause, a remedy or what followed it was wrong. A case that this machine does not let
us make is skipped and says why.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.cases.play import Case, Played, play, write_images
from tests.cases.table import CASES

_LINE = "{:<24} {:<26} {:<26} {:<5} {:>4} {}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases")
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--show", action="store_true", help="print the command's own pages")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.only or case.name in options.only]
    print(f"{len(os.sched_getaffinity(0))} CPUs, load before: {os.getloadavg()[0]:.2f}")
    print(_LINE.format("case", "wanted", "seen", "after", "s", "remedy"), flush=True)
    wrong = skipped = 0
    with tempfile.TemporaryDirectory(prefix="preflight-cases-") as folder:
        images = Path(folder, "images")
        write_images(images)
        for case in cases:
            played = play(case, images)
            wrong, skipped = wrong + bool(played.wrong), skipped + bool(played.skipped)
            _print(case, played, options.show)
    print(f"{len(cases)} cases, {wrong} wrong, {skipped} skipped")
    return 1 if wrong else 0


def _print(case: Case, played: Played, show: bool) -> None:
    seen = f"skipped: {played.skipped}" if played.skipped else played.seen
    remedy = textwrap.shorten(played.remedy, 70, placeholder=" ...")
    after = played.after if len(played.after) < 6 else "no"
    print(_LINE.format(case.name, case.wanted, seen, after, f"{played.seconds:.0f}", remedy))
    if played.wrong:
        print(f"    WRONG: {played.wrong}")
    if played.tries > 1:
        print(f"    tried {played.tries} times: others used the CPUs")
    if show or played.wrong:
        for ran in played.runs:
            print(textwrap.indent(ran.page, "    "))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
