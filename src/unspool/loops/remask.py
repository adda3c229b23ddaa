"""What is done about places that are filled already: masked again, or filled with something else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ..core.canvas import Canvas
from .denoise_state import DenoiseState


class Remask(Protocol):
    """A second thought about drafts. One that remembers is a `Rule`.

    While a request may think again, what it fills are drafts. They become final when the window has no hole left and
    nothing is asked about any more.
    """

    @property
    def looks(self) -> int:
        """How many looks at one window it may take, besides one for each of its places."""

    def asks(self, canvas: Canvas) -> Collection[int]:
        """The filled places of the window whose laws it has to see."""

    def __call__(self, sight: DenoiseState, canvas: Canvas) -> Canvas:
        """The canvas, just filled after this look, with some drafts changed or turned into holes."""
