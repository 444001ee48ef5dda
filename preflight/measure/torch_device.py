"""The CUDA device by torch: the only file that touches torch.cuda.

It does and times what it is told and turns torch's errors into DeviceError; how much is copied and
what a time is worth is decided elsewhere. Keep it thin: machines without a GPU cannot test it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise

import torch

from preflight.measure.device import Copy, DeviceError

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_WORD_BYTES = 8
# Word i of the pattern is i * _ODD ^ _MASK: every word differs from all others, so a page in the
# wrong place shows. 33 bits keep i * _ODD within int64 for pieces of up to 4 GiB.
_ODD = 0x1_7F4A_7C15
_MASK = 0x5AA5_3CC3_6996_0FF0


class TorchDevice:
    """Device 0, with its context. See `preflight.measure.device.Device`."""

    def __init__(self) -> None:
        with _device_errors():
            torch.cuda.init()
            self._device = torch.device("cuda", 0)
            torch.empty(1, device=self._device)  # the first allocation makes the context
            torch.cuda.synchronize(self._device)
            self._side = torch.cuda.Stream(self._device)
        self._made_bytes = 0

    def arch_list(self) -> tuple[str, ...]:
        """Architectures that torch carries code for."""
        return tuple(torch.cuda.get_arch_list())

    def kernel(self, numbers: int) -> float:
        """Sum 0 .. numbers - 1; reading the result waits for the kernels and for their errors."""
        with _device_errors():
            ones = torch.arange(numbers, dtype=torch.float64, device=self._device)
            return float(ones.sum().item())

    def copy_seconds(self, copy: Copy, piece_bytes: int, pieces: int) -> list[float]:
        """Seconds between the events before and after each copy.

        Pinned copies are queued without waiting, so that they follow each other on the copy engine
        and the host is not in the time. A copy from pageable memory blocks: the driver's CPU thread
        moves the bytes into its own pinned buffers, and that work is most of the time. Its event is
        recorded once the copy has returned, on a stream with nothing else to do, and so counts it.
        """
        with _device_errors():
            pinned, pageable, remote = self._buffers(piece_bytes)
            target, source = {
                "pinned_h2d": (remote, pinned),
                "pinned_d2h": (pinned, remote),
                "pageable_h2d": (remote, pageable),
            }[copy]
            events = [torch.cuda.Event(enable_timing=True) for _ in range(pieces + 1)]
            with torch.cuda.stream(self._side):
                events[0].record()
                for event in events[1:]:
                    target.copy_(source, non_blocking=copy != "pageable_h2d")
                    event.record()
            self._side.synchronize()
            return [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]

    def verify(self, piece_bytes: int) -> bool:
        """There and back; both ends are wiped first, so that a copy that did nothing shows."""
        with _device_errors():
            pinned, pageable, remote = self._buffers(piece_bytes)
            pinned.copy_(pageable)
            with torch.cuda.stream(self._side):
                remote.zero_()
                remote.copy_(pinned, non_blocking=True)
            self._side.synchronize()
            pinned.zero_()
            with torch.cuda.stream(self._side):
                pinned.copy_(remote, non_blocking=True)
            self._side.synchronize()
            return torch.equal(pinned, pageable)

    def _buffers(self, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pinned and pageable host memory, both holding the pattern, and memory of the device."""
        if size > self._made_bytes:
            words = -(-size // _WORD_BYTES)
            pattern = torch.arange(words, dtype=torch.int64).mul_(_ODD).bitwise_xor_(_MASK)
            self._pageable = pattern.view(torch.uint8)
            self._pinned = torch.empty(words * _WORD_BYTES, dtype=torch.uint8, pin_memory=True)
            self._pinned.copy_(self._pageable)
            self._remote = torch.zeros_like(self._pageable, device=self._device)
            torch.cuda.synchronize(self._device)
            self._made_bytes = size
        return self._pinned[:size], self._pageable[:size], self._remote[:size]


@contextlib.contextmanager
def _device_errors() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError) as error:
        raise DeviceError(str(error), _code(error)) from error


def _code(error: BaseException) -> int | None:
    """torch.AcceleratorError, since 2.8, carries the CUDA error; before, only the text tells it."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return _OUT_OF_MEMORY
    code = getattr(error, "error_code", None)
    if code is None and error.__cause__ is not None:
        return _code(error.__cause__)
    return code if isinstance(code, int) else None
