"""Jacobi decoding block by block: the guesses of one block until it stands, then those of the next."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...loops.speculate import Speculate
from .jacobi import Jacobi


@claims(
    SEED,
    name="blocks",
    trials=lambda _: [Speculate(Jacobi(JacobiBlocks(2)), budget=1), Speculate(Jacobi(JacobiBlocks(3)), budget=2)],
    paper="2305.10427",
    systems=("Parallel Jacobi (PJ)", "Parallel GS-Jacobi (PGJ)", "Hybrid GS-Jacobi (HGJ)", "PD-VLA (fixed chunks)"),
)
@dataclass(frozen=True)
class JacobiBlocks:
    """Guess to the end of the current block of `size` tokens and no further, the frame of Jacobi decoding in blocks.

    One block as long as the text is PJ, and PD-VLA's action chunk; small blocks are PGJ; that a stop ends the text in
    any block is HGJ. A block takes at most `size` forwards, and size 1 is plain decoding.

    Claim: SEED under sample matching, ARGMAX under greedy. Cost: as `jacobi`, but forwards get narrower towards a
    block's end.
    """

    size: int = 8

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadRequest(f"blocks:size={self.size} cannot be used; expected a block of 1 token or more")

    def ahead(self, done: int) -> int:
        """What is left of the block, but for its last token: that one comes with the round that finishes it."""
        return self.size - 1 - done % self.size
