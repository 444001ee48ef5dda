"""Whether there is memory for what is to be started: refuse it before the kernel kills. Pure."""

from __future__ import annotations

from preflight.diagnosis.remedies import more_memory


def refusal(
    what: str, need_gib: float, max_share: float, headroom_gib: float, *, or_else: str = ""
) -> str | None:
    """The arithmetic and the remedy where `need_gib` is too much; None where it fits.

    `what` says how the need comes about, "8 processes x 0.6 GiB"; `or_else` what else would help.
    """
    if need_gib <= max_share * headroom_gib:
        return None
    more = more_memory(need_gib / max_share - headroom_gib, or_else=or_else)
    return (
        f"not started: {what} = {need_gib:.2f} GiB, more than {max_share:.0%} of the "
        f"{headroom_gib:.2f} GiB that can be allocated; {more}"
    )
