"""How numbers are written for people: 812, 2,511, 44.1, 0.1122. Records keep the full value."""

from __future__ import annotations


def number(value: int | float, extra: int = 0) -> str:
    """Three significant digits, four under 1, every digit before the point; `extra` adds digits."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1 or size >= 1e15:
        return f"{value:.{4 + extra}g}"
    decimals = extra + (0 if size >= 100 else 1 if size >= 10 else 2)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def apart(one: int | float, other: int | float) -> tuple[str, str]:
    """Both numbers with as many digits as it takes to see that they differ."""
    for extra in range(18):
        texts = number(one, extra), number(other, extra)
        if texts[0] != texts[1] or one == other:
            break
    return texts


def margin(value: float, low: float, text: str) -> str:
    """E.g. " +- 22": how far `low` lies under a value, as fine as the value's `text` is written."""
    # The lower half: the upper one is wider, since a fail has to be surer than a pass.
    return f" +- {value - low:,.{len(text.partition('.')[2])}f}"


def shares(part: float, whole: float) -> tuple[str, str]:
    """What percentage `part` is of `whole`, above 0, and what is missing, in texts that add up.

    ("29 %", "71 %"), ("99.9 %", "0.1 %"), ("147 %", "0 %"): 100 % is said of no less than all.
    """
    exact = 100 * part / whole
    if part >= whole:
        return (f"{exact:,.0f} %" if exact < 1000 else "over 10 times"), "0 %"
    text = f"{exact:.0f}"
    if text in ("0", "100"):
        text = f"{exact:.1f}"
    if text == "0.0":
        return "under 0.1 %", "over 99.9 %"
    if text == "100.0":
        return "over 99.9 %", "under 0.1 %"
    return f"{text} %", f"{100 - float(text):.{len(text.partition('.')[2])}f} %"


def seconds(value: float) -> str:
    """A duration in seconds, to a tenth."""
    return f"{value:,.1f} s"
