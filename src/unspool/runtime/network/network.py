"""What a neural network is to a runtime: tokens with positions and slots go in, logits come out.

Of places whose keys are old, those that have changed most can be computed again alone (cache refresh).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ..cache.kv_pool import KVPool
from ..engine.contracts import Reader

T = TypeVar("T")
Stages: TypeAlias = Generator[None, None, T]
"""Work that pauses between its stages, so that others need not wait for all of it; closing it ends it."""


@dataclass(frozen=True)
class Row:
    """The new tokens of one leaf, and everything they may see.

    Its tokens are `batch.tokens[first:first + count]`. `slots` are the keys of the row, oldest first, the new tokens'
    own slots last; `places` are their positions in the text. Without `hidden_from`, token j sees all keys up to its
    own. With it, token j does not see the keys where hidden_from[j] is True: drafted siblings share a position, not a
    text. `behind[j]` is the slot of the token that token j follows, −1 for the first of a text; the last `drafted`
    tokens may be rolled back to, each by itself.
    """

    first: int
    count: int
    slots: Sequence[int]
    places: Sequence[int]
    hidden_from: Tensor | None = None  # bool [count, len(slots)]
    behind: Sequence[int] = ()
    drafted: int = 0


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


class Network(Reader, Protocol):
    """A causal network with its key/value pool."""

    @property
    def layers(self) -> int:
        """Number of layers."""

    @property
    def slots(self) -> KVPool:
        """Where keys and values live."""

    def forward(self, batch: Batch) -> NetworkOutputs:
        """Run all tokens, store their keys and values in their slots, and read out the wanted ones."""


@runtime_checkable
class SupportsStages(Network, Protocol):
    """A network that can pause in the middle of a forward."""

    def stages(self, batch: Batch) -> Stages[NetworkOutputs]:
        """A forward that pauses after every layer; others may run in between."""
        ...


def staged(network: Network, batch: Batch) -> Stages[NetworkOutputs]:
    """A forward that pauses wherever the network can."""
    if isinstance(network, SupportsStages):
        return (yield from network.stages(batch))
    return network.forward(batch)


def unpaused(stages: Stages[T]) -> T:
    """What comes of stages when nobody pauses between them."""
    while True:
        try:
            next(stages)
        except StopIteration as end:
            return cast("T", end.value)


class CacheRefresh(NamedTuple):
    """Tokens of a batch of which only `most` go on behind the first layer; the others keep what their slots hold."""

    rows: Sequence[int]
    most: int


def staying(renewals: Sequence[CacheRefresh], values: Tensor, old: Tensor) -> list[int]:
    """The tokens that go on: of each renewal those whose values [n, width] are least like the old, by their cosine."""
    alike = F.cosine_similarity(values, old, dim=1)
    gone = set[int]()
    for rows, most in renewals:
        least = alike[torch.tensor(rows, device=alike.device)].argsort()[:most].tolist()
        gone.update(row for number, row in enumerate(rows) if number not in least)
    return [row for row in range(len(values)) if row not in gone]


def narrowed(batch: Batch, stay: Sequence[int]) -> Batch:
    """The batch with these of its tokens alone; the others' keys are seen as they are stored."""
    number = {row: new for new, row in enumerate(stay)}
    rows = []
    for row in batch.rows:
        past = len(row.slots) - row.count
        own = [j for j in range(row.count) if row.first + j in number]
        if own and row.hidden_from is not None:
            keys = [*(k for k in range(len(row.slots)) if k - past not in own), *(past + j for j in own)]
            slots, places = [row.slots[k] for k in keys], [row.places[k] for k in keys]
            first = number[row.first + own[0]]
            rows.append(
                replace(
                    row,
                    first=first,
                    count=len(own),
                    slots=slots,
                    places=places,
                    hidden_from=row.hidden_from[own][:, keys],
                )
            )
    return replace(
        batch,
        tokens=batch.tokens[stay],
        places=batch.places[stay],
        slots=[batch.slots[row] for row in stay],
        rows=rows,
        read=torch.tensor([number[row] for row in batch.read.tolist()]),
        mixed=None,
        renewals=(),
    )
