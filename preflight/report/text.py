r"""Text from the machine, made fit to be shown: every format cleans what it prints with this.

Escape sequences of terminals go, line ends become \n, and what XML 1.0 or a terminal cannot take
(control characters, lone surrogates of undecodable bytes, U+FFFE, U+FFFF, and the marks that turn
the direction of writing) is spelt out as \x07 or \udc80, so that nothing disappears unseen.
"""

from __future__ import annotations

import re

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles and links
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours and cursor
    r"|\x1b[ -/]*[0-~]"
)
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without what a terminal would obey and XML would refuse; lines are kept."""
    text = _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub(_spell, text)


def one_line(text: str) -> str:
    """The cleaned text with every run of white space as one blank."""
    return " ".join(clean(text).split())


def last_lines(text: str, count: int, characters: int = 2000) -> str:
    """The cleaned end of what a process printed, without blank lines."""
    lines = [line for line in clean(text).split("\n") if line.strip()]
    return "\n".join(lines[-count:])[-characters:]


def without_surrogates(text: str) -> str:
    """The text as UTF-8 can carry it: a lone surrogate becomes its six characters, as in clean."""
    return _SURROGATE.sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
