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


def seconds(value: float) -> str:
    """A duration in seconds, to a tenth."""
    return f"{value:,.1f} s"
