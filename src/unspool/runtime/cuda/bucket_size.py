"""The size of a bucket: what its graph is for, and how many rows, tokens and keys it has room for."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from .packing import BITS


class Kind(Enum):
    """What a bucket is for."""

    FILL = "read part of a prompt: keys and values, no logits"
    TREE = "score drafted trees and verify them"
    WRITE = "write on, token by token, without leaving the device"
    SPECULATE = "write on, draft by draft, without leaving the device"
    DRAW = "draw a chain of drafts, without leaving the device"

    @property
    def pads(self) -> bool:
        """Whether a row may have fewer tokens than the bucket has."""
        return self in (Kind.FILL, Kind.TREE)


class Size(NamedTuple):
    """The shape of a bucket: rows × tokens, over texts of up to `length` tokens, `depth` being a drafter's chain's."""

    kind: Kind
    rows: int
    tokens: int
    length: int
    depth: int = 0

    @property
    def words(self) -> int:
        """Words of bits per token: its row, and as many drafts of earlier forwards again."""
        return -(-2 * self.tokens // BITS)

    @property
    def entries(self) -> int:
        """New entries of the table per row that a step can write, besides those of its own tokens."""
        return 2 * self.tokens
