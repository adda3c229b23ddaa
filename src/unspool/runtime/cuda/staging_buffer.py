"""The staging buffer: many small arrays in one, so that the input of a step travels to the device in one copy."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

CODES: dict[torch.dtype, Literal["i", "q", "f", "d"]] = {
    torch.int32: "i",
    torch.int64: "q",
    torch.float32: "f",
    torch.float64: "d",
}
ALIGNED = 16


class StagingBuffer:
    """Arrays of given types and sizes, on the host to be written and on the device to be read after `send`.

    The host's side is pinned, so that a copy does not wait; a new one waits until the last has left.
    """

    def __init__(self, fields: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], device: torch.device) -> None:
        starts, size = {}, 0
        for name, (dtype, shape) in fields.items():
            starts[name] = size
            size += -(-torch.Size(shape).numel() * dtype.itemsize // ALIGNED) * ALIGNED
        gpu = device.type == "cuda"
        self._host = torch.zeros(size, dtype=torch.uint8, pin_memory=gpu)
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)
        self._sent = torch.cuda.Event() if gpu else None  # type: ignore[no-untyped-call]
        raw = memoryview((ctypes.c_ubyte * size).from_address(self._host.data_ptr())).cast("B")
        self._to: dict[str, tuple[str, memoryview[Any]]] = {}
        self.on: dict[str, Tensor] = {}
        for name, (dtype, shape) in fields.items():
            start, count = starts[name], torch.Size(shape).numel()
            end = start + count * dtype.itemsize
            self._to[name] = CODES[dtype], raw[start:end].cast(CODES[dtype])
            self.on[name] = self._device[start:end].view(dtype).view(shape)

    def put(self, name: str, numbers: Sequence[int] | Sequence[float], rest: float = 0) -> None:
        """Write an array; what is left of it becomes `rest`."""
        code, to = self._to[name]
        given: array[Any] = _counted(numbers) if isinstance(numbers, range) and code == "i" else array(code, numbers)
        to[:] = given + array(code, (int(rest) if code in "iq" else rest,)) * (len(to) - len(given))

    def begin(self, name: str, numbers: Sequence[int] | Sequence[float]) -> None:
        """Write the first numbers of an array and leave the others as they are."""
        code, to = self._to[name]
        to[: len(numbers)] = array(code, numbers)

    def wait(self) -> None:
        """Wait until what was sent last has left the host."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self) -> None:
        """Copy everything to the device."""
        self._device.copy_(self._host, non_blocking=True)
        if self._sent is not None:
            self._sent.record()


def _counted(numbers: range) -> array[int]:
    """Neighbouring whole numbers, without making each of them anew."""
    return _first(1 << max(numbers.stop, 1).bit_length())[numbers.start : numbers.stop]


@lru_cache(maxsize=1)
def _first(count: int) -> array[int]:
    return array("i", range(count))


class ReadBack:
    """A few whole numbers on their way to the host, past the work that comes after what has made them."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        gpu = device.type == "cuda"
        self._host = torch.zeros(shape, dtype=torch.int32, pin_memory=gpu)
        self._stream = torch.cuda.Stream(device) if gpu else None  # type: ignore[no-untyped-call]

    def send(self, numbers: Tensor) -> None:
        """Copy them as soon as what was asked of the device so far is done; the next work need not wait for that."""
        if self._stream is None:
            self._host.copy_(numbers)
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._host.copy_(numbers.contiguous(), non_blocking=True)

    def read(self) -> list[Any]:
        """What was sent last."""
        if self._stream is not None:
            self._stream.synchronize()
        numbers: list[Any] = self._host.tolist()
        return numbers
