"""A denoise batch: what one forward computes to answer a look, what its tokens see, and where laws are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ...core.asks import Look, Soft
from ...core.canvas import HOLE
from ...models.shape import DiffusionSpec
from ..cache.sequence import CachedSequence
from ..engine.contracts import LookRequest
from ..network.network import Batch, Network, Row, SoftTokens, Stages, staged


@dataclass(frozen=True)
class MaskedSpan:
    """Some neighbouring places, in the order in which their keys are stored, and those whose laws are wanted.

    It is empty where the text before it tells them all. In a causal span each place sees only itself and those before
    it in that order. The last `hung` of a causal span are holes beside the tokens that stand there: hole n sees itself
    and the first n tokens, and nobody sees it.
    """

    order: tuple[int, ...]
    tokens: tuple[int, ...]
    wanted: tuple[int, ...]
    causal: bool = False
    hung: int = 0

    def __len__(self) -> int:
        return len(self.order)

    def reads(self, filling: DiffusionSpec) -> list[int | None]:
        """The numbers of the tokens at which the wanted laws are read; None is the text before the span."""
        shifted = filling.reading == "shifted"
        at = [place - 1 if shifted and place > 0 else place for place in self.wanted]  # nothing stands before the first
        number = {place: n for n, place in enumerate(self.order)}  # of a token and a hole beside it, the hole
        return [number.get(place) for place in at]

    def seen(self, number: int) -> int:
        """Which tokens of the span one of them sees: bit i for the i-th."""
        if not self.causal:
            return (1 << len(self)) - 1
        hole = number - (len(self) - self.hung)
        return (1 << hole) - 1 | 1 << number if hole >= 0 else (2 << number) - 1

    def hidden(self, keys: Sequence[int], filling: DiffusionSpec) -> Tensor:
        """Which keys each place must not see; its own are the last of them."""
        if not self.causal:
            return _later(self.order, keys, filling)
        number, first, tokens = torch.arange(len(keys)), len(keys) - len(self), len(self) - self.hung
        hidden = number > number[first:, None]
        for n in range(self.hung):
            hidden[tokens + n, first + n : first + tokens + n] = True
        return hidden


@dataclass
class DenoiseBatch:
    """What a look adds to the text of a page: tokens that are owed to it, and spans, which nobody keeps.

    `start` is where the text ends and the spans begin. A batch without spans reads its laws along the text itself: that
    of `start` and of every place behind it.
    """

    start: int
    text: tuple[int, ...]  # all that is read from left to right
    spans: Sequence[MaskedSpan]
    soft: Mapping[int, Soft]
    page: CachedSequence = field(default_factory=lambda: CachedSequence([]))
    owed: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.owed) + sum(map(len, self.spans))

    @property
    def known(self) -> int:
        """How many tokens of the text are computed."""
        return len(self.text) - len(self.owed)

    def at_text(self, filling: DiffusionSpec) -> list[bool]:
        """For every place that is looked at, whether its law is read at the last token of the text."""
        if not self.spans:
            return [place == len(self.text) for place in range(self.start, len(self.text) + 1)]
        return [number is None for span in self.spans for number in span.reads(filling)]

    def final(self, filling: DiffusionSpec) -> tuple[int, ...]:
        """The places whose laws are read at the text, where no place that is still open is seen."""
        wanted = [place for span in self.spans for place in span.wanted]
        return tuple(place for place, is_text in zip(wanted, self.at_text(filling), strict=False) if is_text)

    def reads(self, filling: DiffusionSpec) -> list[int]:
        """The numbers of the tokens whose logits are read: first the last of those owed, if any, then for the rest."""
        owed = len(self.owed)
        reads = [owed - 1] if owed else []
        if not self.spans:
            return [*reads, *range(self.start - 1 - self.known, owed - 1)]
        first = owed
        for span in self.spans:
            reads += (first + number for number in span.reads(filling) if number is not None)
            first += len(span)
        return reads

    def packed(self, first: int, filling: DiffusionSpec) -> tuple[list[int], list[int], list[Row]]:
        """The tokens, their positions and the rows of the batch, whose first token has number `first`."""
        tokens, places, rows = list(self.owed), list(range(self.known, len(self.text))), list[Row]()
        before = [*self.page.slots[: self.known], *self.slots[: len(self.owed)]]
        if self.owed:
            keys = list(range(len(self.text)))
            rows.append(
                Row(first, len(self.owed), before, keys, None if filling.reads else _later(places, keys, filling))
            )
        for span in filter(len, self.spans):
            at, count = len(tokens), len(span)
            slots = [*before, *self.slots[at : at + count]]
            keys = [*range(len(self.text)), *span.order]
            rows.append(Row(first + at, count, slots, keys, span.hidden(keys, filling)))
            tokens += span.tokens
            places += span.order
        return tokens, places, rows

    def mixtures(self, first: int) -> list[tuple[int, Soft]]:
        """The holes that show a mixture, by the number of their token."""
        found, at = list[tuple[int, Soft]](), first + len(self.owed)
        for span in self.spans:
            for number, (place, token) in enumerate(zip(span.order, span.tokens, strict=True)):
                if token == HOLE and place in self.soft:
                    found.append((at + number, self.soft[place]))
            at += len(span)
        return found


def batch_of(look: Look, filling: DiffusionSpec) -> DenoiseBatch:
    """The batch that answers a look."""
    canvas, places = look.canvas, look.wanted
    if look.along and _comes_next(look) and filling.reads:
        first, end = places[0], places[-1]  # nobody asks what comes behind the last
        if filling.reading == "shifted":
            return DenoiseBatch(first, canvas.tokens[:end], (), {})
        if filling.layout == "causal":
            hung = (HOLE,) * len(places)
            span = MaskedSpan((*places[:-1], *places), (*canvas.tokens[first:end], *hung), places, True, len(places))
            return DenoiseBatch(first, canvas.tokens[:first], (span,), look.soft)
    known = canvas.masked(look.along) if look.along else canvas
    end = min(filling.whole(max(canvas.window[1], max(places) + 1) + filling.block - 1), len(canvas))
    holes = [i for i in range(end) if known.tokens[i] == HOLE]
    first = min([*places, *holes[:1]])
    start = min(first, canvas.window[0]) if filling.layout == "block" else filling.whole(first)
    spans = [
        _span(canvas.masked(look.along[n:]).tokens, start, end, (place,), filling) for n, place in enumerate(look.along)
    ]
    shown = [each.canvas for each in look.tried()] or [canvas]
    spans = spans or [_span(each.tokens, start, end, places, filling) for each in shown]
    return DenoiseBatch(start, canvas.tokens[:start], spans, look.soft)


def _span(tokens: tuple[int, ...], start: int, end: int, wanted: tuple[int, ...], filling: DiffusionSpec) -> MaskedSpan:
    causal = filling.layout == "causal"
    order = tuple(sorted(range(start, end), key=lambda i: causal and tokens[i] == HOLE))
    span = MaskedSpan(order, tuple(tokens[i] for i in order), wanted, causal)
    own = any(number is not None for number in span.reads(filling))
    return span if own else MaskedSpan((), (), wanted, causal)  # the text alone tells


def _later(places: Sequence[int], keys: Sequence[int], filling: DiffusionSpec) -> Tensor:
    """Which keys each place must not see: those in a later block, where there are blocks, else none."""
    if filling.layout != "blocks":
        return torch.zeros(len(places), len(keys), dtype=torch.bool)
    return torch.tensor(keys) // filling.block > torch.tensor(places)[:, None] // filling.block


def _comes_next(look: Look) -> bool:
    """Whether the places along which a look goes are simply what comes next, with nothing behind them."""
    tokens, along, end = look.canvas.tokens, look.along, look.canvas.window[1]
    run = along == tuple(range(along[0], along[0] + len(along))) and along[0] > 0
    return run and HOLE not in tokens[: along[-1]] and all(x == HOLE for x in tokens[along[-1] + 1 : end])


def mixed(found: Sequence[tuple[int, Soft]]) -> SoftTokens | None:
    """The mixtures of a batch."""
    if not found:
        return None
    rows, softs = zip(*found, strict=True)
    weight = torch.tensor([soft.weight for soft in softs], dtype=torch.float64)
    return SoftTokens(torch.tensor(rows), torch.stack([soft.law.p for soft in softs]), weight)


def waves(asked: Sequence[LookRequest]) -> Iterator[list[int]]:
    """The numbers of the looks, so that no session is in a wave twice."""
    left = list(range(len(asked)))
    while left:
        wave: dict[object, int] = {}
        for n in left:
            session = asked[n].session
            wave.setdefault(n if session is None else session, n)
        yield list(wave.values())
        left = [n for n in left if n not in wave.values()]


class Denoiser(Protocol):
    """One forward over what several looks add to their texts, in slots that were taken for it."""

    def stages(self, batches: list[DenoiseBatch]) -> Stages[list[Tensor]]:
        """For every batch the logits that it reads; it may pause on the way."""
        ...


class EagerDenoiser:
    """Looks by a network that takes any batch."""

    def __init__(self, network: Network, spec: DiffusionSpec) -> None:
        self._network, self._spec = network, spec

    def stages(self, batches: list[DenoiseBatch]) -> Stages[list[Tensor]]:
        tokens, places, slots = list[int](), list[int](), list[int]()
        rows, read, soft, counts = list[Row](), list[int](), list[tuple[int, Soft]](), list[int]()
        for batch in batches:
            first = len(tokens)
            own_tokens, own_places, own_rows = batch.packed(first, self._spec)
            tokens += own_tokens
            places += own_places
            slots += batch.slots
            rows += own_rows
            soft += batch.mixtures(first)
            reads = batch.reads(self._spec)
            read += (first + number for number in reads)
            counts.append(len(reads))
        if not tokens:  # all is known
            return [torch.empty(0)] * len(batches)
        forward = Batch(torch.tensor(tokens), torch.tensor(places), slots, rows, torch.tensor(read), (), mixed(soft))
        return list(torch.split((yield from staged(self._network, forward)).logits, counts))
