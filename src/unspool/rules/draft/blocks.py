"""Jacobi decoding block by block: the guesses of one block until it stands, then those of the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...core.claim import SEED, Method, claims
from ...core.errors import BadRequest
from ...core.option import DEPTH
from ...loops.speculate import Speculate
from .jacobi import Jacobi


def build(size: Annotated[int, DEPTH] = 8) -> Method:
    """Jacobi decoding in blocks under the walk."""
    return Speculate(Jacobi(Blocks(size)), budget=max(size - 1, 1))


@claims(
    SEED,
    trials=lambda _: [build(2), build(3)],
    build=build,
    paper="2305.10427",
    systems=("Parallel Jacobi (PJ)", "Parallel GS-Jacobi (PGJ)", "Hybrid GS-Jacobi (HGJ)", "PD-VLA (fixed chunks)"),
)
@dataclass(frozen=True)
class Blocks:
    """Guess to the end of the current block of `size` tokens and no further, the frame of Jacobi decoding in blocks.

    One block as long as the text is PJ, and PD-VLA's action chunk; small blocks are PGJ; that a stop ends the text in
    any block is HGJ. A block takes at most `size` forwards, and size 1 is plain decoding.

    Claim: SEED under the walk, ARGMAX under greedy. Cost: as `jacobi`, but forwards get narrower towards a block's end.
    """

    size: int = 8

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadRequest(f"blocks:size={self.size} cannot be used; expected a block of 1 token or more")

    def ahead(self, done: int) -> int:
        """What is left of the block, but for its last token: that one comes with the round that finishes it."""
        return self.size - 1 - done % self.size
