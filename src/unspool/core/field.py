"""Fields: the laws at places of a canvas, and how peaked they are, all read with one copy from the device."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .law import Law


class Confidence(NamedTuple):
    """How peaked a law is: its most probable token, that one's probability, its lead over the second, the entropy.

    A law that nothing can change any more, because the model reads it from what is final already, counts as certain:
    to wait would teach its place nothing, and all others something.
    """

    token: int
    p: float
    margin: float
    entropy: float  # in nats


class Field(Mapping[int, Law]):
    """The law at each of some places of a canvas; `rows` is how many token rows were computed to tell.

    The laws at the `final` places depend on nothing that is still open. What every rule asks first, the peaks, is
    worked out for all places together when the first is looked at.
    """

    def __init__(self, laws: Mapping[int, Law], rows: int = 0, final: Collection[int] = ()) -> None:
        self._laws, self.rows, self.final = laws, rows, frozenset(final)

    @staticmethod
    def of(places: Sequence[int], scores: Tensor, rows: int = 0, final: Collection[int] = ()) -> Field:
        """The field whose laws are the rows of `scores` [places, vocab], in this order."""
        field = Field({place: Law(scores[n]) for n, place in enumerate(places)}, rows, final)
        field.__dict__["scores"] = scores
        return field

    @cached_property
    def scores(self) -> Tensor:
        """All log-weights [places, vocab], in the order of the places."""
        return torch.stack([law.scores for law in self._laws.values()])

    @cached_property
    def peaks(self) -> Mapping[int, Confidence]:
        """The peak of every law."""
        if not self._laws:
            return {}
        logs = self.scores.float() if self.scores.dtype in (torch.float16, torch.bfloat16) else self.scores
        logs = logs.log_softmax(1)
        two, tokens = logs.topk(min(2, logs.shape[1]))
        p = logs.exp()
        entropy = -torch.where(p > 0, p * logs, 0.0).sum(1)
        best = two.exp()
        margin = best[:, 0] - best[:, 1] if best.shape[1] == 2 else best[:, 0]
        told = torch.stack((tokens[:, 0].to(p.dtype), best[:, 0], margin, entropy), 1).tolist()
        found = {place: Confidence(int(row[0]), *row[1:]) for place, row in zip(self._laws, told, strict=True)}
        return found | {place: Confidence(found[place].token, 1.0, 1.0, 0.0) for place in self.final & found.keys()}

    def __getitem__(self, place: int) -> Law:
        return self._laws[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self._laws)

    def __len__(self) -> int:
        return len(self._laws)
