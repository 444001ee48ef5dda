"""A data set of the job's own whose samples may raise: another one stands in, and it is counted.

A training job would end at the first of them, unless its data set skips them itself. Here one bad
file in a million must not keep the rate from being measured, nor go unseen.
"""

from __future__ import annotations

from typing import Any

from preflight.diagnosis.loader_failures import explain
from preflight.measure.counting import CountingDataset
from preflight.measure.dataset import MAX_CORRUPT_IN_A_ROW, CorruptData
from preflight.measure.telling import ITEM, item_bytes, note
from preflight.user_code import said


class StandingIn(CountingDataset):
    """Map-style, counted; the sample behind one that raises is given in its place.

    Not for `__getitems__`, where nobody knows which sample raised, nor for indices that are no
    numbers: those errors are the loader's end.
    """

    def __getitem__(self, index: Any) -> Any:
        """One sample.

        Raises:
            CorruptData: so many in a row raised, and others before them did not.
            Exception: the data set's own, where nothing was given yet or no sample is at fault.
        """
        own, tries, tried = self.__dict__, 1, 0
        while True:
            at = (index + tried) % len(self) if tried else index
            try:
                item = super().__getitem__(at)
            except Exception as error:
                if not tried:
                    tries = self._preflight_tries(index, error)
                tried += 1
                if tries == 1:
                    raise
                # One name for each worker: the first that it met.
                first = own.setdefault(_FIRST, f"sample {at}: {said(error)}")
                if tried == tries:
                    if not any(slot.finished for slot in self._preflight_counters.read()):
                        raise
                    raise CorruptData(f"{tries} samples in a row raised, {first}") from error
                self._preflight_slot().corrupt(first)
                continue
            if _GIVEN not in own:
                own[_GIVEN] = True
                note(ITEM, f"sample {item_bytes(item)}")
            return item

    def _preflight_tries(self, index: Any, error: Exception) -> int:
        """How many samples may raise in a row; one, where it is not the sample that is at fault."""
        text = f"{type(error).__name__}: {error}"
        at_fault = explain(text, "", None, None) is None and "CUDA" not in text
        try:
            known = at_fault and isinstance(index, int) and len(self) > 1
        except Exception:  # a data set without a length
            known = False
        return MAX_CORRUPT_IN_A_ROW if known else 1

    def __reduce__(self) -> tuple[Any, ...]:
        made, given = super().__reduce__()
        return made, given[:4]


_FIRST, _GIVEN = "_preflight_first_error", "_preflight_given"
