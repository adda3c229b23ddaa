"""A share of a model: the heads, hidden numbers and rows of the vocabulary that one of several ranks holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.errors import BadRequest
from .layer_shape import TURNS_IN_PART
from .shape import Shape
from .vocabulary import Vocabulary
from .weights import Checkpoint

COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")  # cut by what goes out of them
ROWS = ("o_proj", "down_proj")  # cut by what comes into them: each rank's product is one summand of the whole


@dataclass(frozen=True)
class Share:
    """Rank `rank` of `ranks`, and what it holds of a model of a given shape.

    Key-value heads are dealt out with their query heads, as evenly as they come: 3 on 2 ranks are 2 and 1. Where there
    are more ranks than key-value heads, several ranks hold the same one, each with its part of the query heads. DTensor
    would cut every dimension into chunks of one size, and a head in the middle.
    """

    rank: int
    ranks: int

    def part(self, whole: int) -> range:
        """Which of `whole` things in a row it has: as many as the others, or one more if it comes first."""
        return range(-(-self.rank * whole // self.ranks), -(-(self.rank + 1) * whole // self.ranks))

    def queries(self, shape: Shape) -> range:
        """Its query heads."""
        if shape.kv_heads < self.ranks:
            return self.part(shape.heads)
        keys, group = self.part(shape.kv_heads), shape.heads // shape.kv_heads
        return range(keys.start * group, keys.stop * group)

    def keys(self, shape: Shape) -> range:
        """Its key-value heads."""
        if shape.kv_heads >= self.ranks:
            return self.part(shape.kv_heads)
        head = self.queries(shape).start * shape.kv_heads // shape.heads
        return range(head, head + 1)

    def tokens(self, vocab: int) -> range:
        """The tokens whose logits it computes, in chunks of one size but for the last, as DTensor joins them."""
        size = -(-vocab // self.ranks)
        return range(min(self.rank * size, vocab), min((self.rank + 1) * size, vocab))

    def shape(self, whole: Shape) -> Shape:
        """The shape of its layers; refuses a model that cannot be shared so."""
        refuse(whole, self.ranks)
        heads, kv_heads = len(self.queries(whole)), len(self.keys(whole))
        return replace(whole, heads=heads, kv_heads=kv_heads, hidden=len(self.part(whole.hidden)))


def refuse(shape: Shape, ranks: int) -> None:
    """Say why a model cannot be shared among so many ranks, if it cannot."""
    if ranks < 1:
        raise BadRequest(f"ranks={ranks}; expected a number of processes from 1 on.")
    odd = shape.oddity(TURNS_IN_PART)
    if ranks > 1 and odd is not None:
        raise BadRequest(f"this {shape.family} model has {odd}, which are not shared among ranks; load it with 1.")
    heads, kv_heads = shape.heads, shape.kv_heads
    if ranks > kv_heads and (ranks % kv_heads or heads % ranks):
        more = [str(n) for n in range(2 * kv_heads, heads + 1, kv_heads) if heads % n == 0]
        raise BadRequest(
            f"{ranks} ranks cannot share {heads} query heads on {kv_heads} key-value heads; "
            f"choose at most {kv_heads}{', or ' + ' or '.join(more) if more else ''}."
        )
    if ranks > min(shape.hidden, shape.vocab):
        raise BadRequest(f"{ranks} ranks cannot share {shape.hidden} hidden numbers and {shape.vocab} tokens.")


class RankCheckpoint:
    """The share of a rank as a checkpoint of its own: tensors are read one at a time, and only the part is kept.

    Embedding and norms are whole. A bias behind a sum over the ranks is the first rank's alone, zero on the others.
    """

    def __init__(self, whole: Checkpoint, share: Share) -> None:
        self.whole, self.share = whole, share
        self.shape = share.shape(whole.shape)

    @property
    def title(self) -> str:
        return self.whole.title

    @property
    def bytes(self) -> int:
        return self.whole.bytes

    @property
    def rope_factors(self) -> Tensor | None:
        return self.whole.rope_factors

    def vocabulary(self) -> Vocabulary:
        return self.whole.vocabulary()

    def names(self) -> frozenset[str]:
        return self.whole.names()

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return its part of one tensor, rounded once to `dtype`; a safetensors file is read only there."""
        found = self.whole.tensor(name, dtype)
        *_, part, kind = ("", *name.split("."))
        if part in ROWS and kind == "bias":
            return found if self.share.rank == 0 else torch.zeros_like(found)
        along = self._along(part)
        if along is None:
            return found
        # A copy, so that the rest of what was read goes.
        return found.narrow(1 if part in ROWS else 0, along.start, len(along)).clone(
            memory_format=torch.contiguous_format
        )

    def _along(self, part: str) -> range | None:
        """Which rows or columns of a matrix it has; None: all."""
        shape, share = self.whole.shape, self.share
        if part == "lm_head":
            return share.tokens(shape.vocab)
        if part in ("gate_proj", "up_proj", "down_proj"):
            return share.part(shape.hidden)
        if part in COLUMNS or part in ROWS:
            heads = share.keys(shape) if part in ("k_proj", "v_proj") else share.queries(shape)
            return range(heads.start * shape.head_dim, heads.stop * shape.head_dim)
        return None
