"""How a model that fills holes was trained to see a canvas: what each place sees, and where its law is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layout = Literal["block", "blocks", "full", "causal"]
Reading = Literal["aligned", "shifted"]


@dataclass(frozen=True)
class DiffusionSpec:
    """What a network that fills holes takes for granted.

    In the layout "block" the text left of the window is read from left to right, and the places of the window see
    all of it and each other. In "blocks" every place sees its own block, of `block` places counted from the first,
    and all blocks before it, so that no text is read from left to right. In "full" everything sees everything. In
    "causal" every place sees the filled ones left of it, and a hole also all filled places of the window and the
    holes before it. The law of place i is read at place i ("aligned") or at place i − 1 ("shifted"). A hole looks
    like the token `mask`, which is never written; if it is `learned`, it has a vector of its own, the tensor
    `model.mask`, and the token's own embedding is left alone.
    """

    layout: Layout
    reading: Reading
    mask: int
    learned: bool = False
    block: int = 1

    @property
    def reads(self) -> bool:
        """Whether text is also read from left to right, as by any causal model."""
        return self.layout in ("block", "causal")

    def whole(self, size: int) -> int:
        """So many places without the last, unfinished block."""
        return size // self.block * self.block
