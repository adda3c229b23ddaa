"""What a neural network is to a runtime: tokens with positions and slots go in, logits come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from ..cache.kv_pool import KVPool
from ..diffusion.cache_refresh import CacheRefresh


@dataclass(frozen=True)
class Row:
    """The new tokens of one leaf, and everything they may see.

    Its tokens are `batch.tokens[first:first + count]`. `slots` are the keys of the row, oldest first, the new tokens'
    own slots last; `places` are their positions in the text. Without `hidden_from`, token j sees all keys up to its
    own. With it, token j does not see the keys where hidden_from[j] is True: drafted siblings share a position, not a
    text.
    """

    first: int
    count: int
    slots: Sequence[int]
    places: Sequence[int]
    hidden_from: Tensor | None = None  # bool [count, len(slots)]


class SoftTokens(NamedTuple):
    """Rows of a batch that are mixtures: (1 − weight)·mask + weight·Σ p(x)·embedding(x)."""

    rows: Tensor  # int64 [k]
    p: Tensor  # [k, vocab]
    weight: Tensor  # [k]


@dataclass(frozen=True)
class Batch:
    """New tokens of several texts for one forward, packed without padding."""

    tokens: Tensor  # int64 [n], HOLE where there is none and the network shows its mask
    places: Tensor  # int64 [n], the position of each in its text
    slots: Sequence[int]  # where each one's keys and values go
    rows: Sequence[Row]
    read: Tensor  # int64 [m], the tokens whose logits are wanted
    want: tuple[int, ...] = ()  # hidden states wanted at those tokens: i enters layer i, −1 leaves the last norm
    mixed: SoftTokens | None = None  # holes that show a mixture instead of the bare mask
    renewals: Sequence[CacheRefresh] = ()  # a network may as well compute them all


class NetworkOutputs(NamedTuple):
    """Logits in float32 or better [m, vocab], and hidden states by layer [m, width]."""

    logits: Tensor
    hidden: Mapping[int, Tensor]


class Network(Protocol):
    """A causal network with its key/value pool."""

    @property
    def vocab(self) -> int:
        """Number of logits."""
        ...

    @property
    def context(self) -> int | None:
        """The longest text it can read."""
        ...

    @property
    def layers(self) -> int:
        """Number of layers."""
        ...

    @property
    def slots(self) -> KVPool:
        """Where keys and values live."""
        ...

    def forward(self, batch: Batch) -> NetworkOutputs:
        """Run all tokens, store their keys and values in their slots, and read out the wanted ones."""
        ...
