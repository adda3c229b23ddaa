"""Which part of a canvas is worked on: the whole of it, or one block after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from ..core.canvas import Canvas
from ..core.errors import BadRequest
from .denoise_state import DenoiseState


class Blocks(Protocol):
    """What to look at now: the canvas with its window on the holes to work on; without a hole in it, all is done.

    It may cut off what should not be seen. A plain function will do; one that remembers is a `Rule`, and one that
    settles for less after it has looked is `Narrowing`.
    """

    def __call__(self, canvas: Canvas, /) -> Canvas:
        """The sheet to look at."""


class Narrowing(ABC):
    """Blocks that settle for a part of what was looked at."""

    @abstractmethod
    def saw(self, sight: DenoiseState) -> DenoiseState:
        """The sight of the part that may be filled."""


def narrowed(blocks: Blocks, sight: DenoiseState) -> DenoiseState:
    """What may be filled of what was seen."""
    return blocks.saw(sight) if isinstance(blocks, Narrowing) else sight


def whole(canvas: Canvas) -> Canvas:
    """All that follows the prompt."""
    return canvas.within(canvas.prompt, len(canvas))


def with_holes(blocks: Blocks, canvas: Canvas) -> tuple[int, int]:
    """The window on the first block that has a hole, where drafts may stand that somebody else will revise.

    For rules that have blocks of their own: the loop's are done only when their drafts are.
    """
    return blocks(canvas.fixed(0, len(canvas))).window


@dataclass(frozen=True)
class FixedBlocks:
    """The first block of `size` places that has a hole or a draft, counted from the end of the prompt."""

    size: int = 32

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadRequest(f"block={self.size} cannot be used; expected a block of at least 1")

    def __call__(self, canvas: Canvas) -> Canvas:
        start, end = canvas.prompt, len(canvas)
        first = next((i for i in range(start, end) if canvas.is_open(i)), end)
        low = start + (first - start) // self.size * self.size
        return canvas.within(low, min(low + self.size, end))


def blocks_of(size: int) -> Blocks:
    """Blocks of this size; 0 for the whole canvas as one."""
    return whole if size == 0 else FixedBlocks(size)
