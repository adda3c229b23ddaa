"""Packing: a forward request as one row of a rectangular batch, with what each token sees as bits; sizes of batches."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from ..cache.forward_request import ForwardRequest
from ..cache.sequence import CachedSequence, DraftNode

BITS = 32
ENTRIES = 64  # of the table that the smallest step can write


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
    """The shape of a bucket: rows × tokens, over texts of up to `length` tokens.

    `depth` is that of the tree that a trained drafter reads, of which a line is `drawn` where some text is.
    """

    kind: Kind
    rows: int
    tokens: int
    length: int
    depth: int = 0
    drawn: bool = False

    @property
    def words(self) -> int:
        """Words of bits per token: its row, and as many drafts of earlier forwards again; prompts have none."""
        return 1 if self.kind is Kind.FILL else -(-2 * self.tokens // BITS)

    @property
    def entries(self) -> int:
        """New entries of the table per row that a step can write, besides those of its own tokens.

        Few rows may have more: a plain step that follows an accepted tree writes the slots of all that stood.
        """
        return max(2 * self.tokens, ENTRIES // self.rows)


class Packed(NamedTuple):
    """The tokens of one row. Bit b of `sees[i]` tells whether token i sees key `clear` + b of the row.

    The row's keys are those of the text as far as it is computed (all see them), the drafts below it, and its own.
    `root` is the index of the text's last token, `parents` are indices in the row; both tell the verifier what hangs
    where, and are None where a draft hangs from one of an earlier forward.
    """

    tokens: list[int]
    places: Sequence[int]
    slots: list[int]
    sees: list[int]
    clear: int
    behind: list[int]  # slots of the row's older keys that are not the text's own yet
    key_places: list[int]  # places of the keys from `clear` on
    past: int
    root: int
    parents: list[int] | None
    before: Sequence[int] = ()  # in recurrent layers, the token of the row that each follows, or ~c for checkpoint c
    into: Sequence[int] = ()  # and the number of the checkpoint that it leaves, −1 for none


def packed(request: ForwardRequest, done: int = 0) -> Packed:
    """The row of a request, whose first `done` owed tokens are computed already."""
    leaf, owed = request.leaf, request.owed[done:]
    clear, older = len(leaf.slots) + done, len(leaf.drafts)
    end, count = len(leaf.tokens), len(owed)
    text = ((1 << count) - 1) << older
    sees = [((2 << i) - 1) << older for i in range(count)]
    places, tokens = list(range(clear, end)), [*owed, *(token for token, _ in request.added)]
    parents: list[int] | None = list(range(-1, count - 1))
    for i, (_, above) in enumerate(request.added):
        own = 1 << (older + count + i)
        if isinstance(above, DraftNode):
            sees.append(_line(above) | own)
            places.append(above.place + 1)
            parents = None
        else:
            sees.append((text if above < 0 else sees[count + above]) | own)
            places.append(end if above < 0 else places[count + above] + 1)
            if parents is not None:
                parents.append(count - 1 if above < 0 else count + above)
    behind = [*request.slots[:done], *(node.slot for node in leaf.drafts)]
    key_places = [*(node.place for node in leaf.drafts), *places]
    known = parents if count else None
    return Packed(
        tokens, places, request.slots[done:], sees, clear, behind, key_places, clear + older, count - 1, known
    )


def words(sees: list[int], width: int) -> list[int]:
    """Bits as `width` signed 32-bit words each."""
    if width == 1:
        return [_signed(bits & 0xFFFFFFFF) for bits in sees]
    return [_signed(bits >> (BITS * word) & 0xFFFFFFFF) for bits in sees for word in range(width)]


def filled(numbers: Sequence[int], size: int, rest: int) -> Sequence[int]:
    """These numbers, and as many of `rest` behind them as are lacking."""
    return numbers if len(numbers) == size else [*numbers, *[rest] * (size - len(numbers))]


def _signed(word: int) -> int:
    return word - (1 << BITS) if word >> (BITS - 1) else word


def _line(node: DraftNode) -> int:
    """The bits of a drafted token and of all drafted tokens above it."""
    bits, above = 0, node
    while isinstance(above, DraftNode):
        bits |= 1 << above.order
        above = above.above  # type: ignore[assignment]
    assert isinstance(above, CachedSequence)
    return bits
