"""What every kind of data offers to a measurement: a number of samples, their bytes, their names.

Fetching (bytes off storage) is here; decoding is not, so that the two can be timed apart.
"""

from __future__ import annotations

from typing import Protocol


class Source(Protocol):
    """A set of encoded samples. It is pickled into loader workers, so it holds no open file."""

    def __len__(self) -> int:
        """Number of samples."""

    def fetch(self, index: int) -> bytes:
        """All bytes of one sample; OSError as the storage gives it."""

    def name(self, index: int) -> str:
        """What an operator would look for to find this sample."""
