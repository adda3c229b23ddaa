"""A sheet: what one forward computes to answer a look, what each of its tokens sees, and where the laws are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.asks import Look, Soft
from ...core.canvas import HOLE
from ...models.filling import Filling
from ..cache.sequence import Leaf
from ..engine.contracts import Looking
from ..network.network import Mixed, Row


@dataclass(frozen=True)
class Pane:
    """Some neighbouring places, in the order in which their keys are stored, and those whose laws are wanted.

    It is empty where the text before it tells them all. In a causal pane each place sees only itself and those before
    it in that order.
    """

    order: tuple[int, ...]
    tokens: tuple[int, ...]
    wanted: tuple[int, ...]
    causal: bool = False

    def __len__(self) -> int:
        return len(self.order)

    def reads(self, filling: Filling) -> list[int | None]:
        """The numbers of the tokens at which the wanted laws are read; None is the text before the pane."""
        shifted = filling.reading == "shifted"
        at = [place - 1 if shifted and place > 0 else place for place in self.wanted]  # nothing stands before the first
        number = {place: n for n, place in enumerate(self.order)}
        return [number.get(place) for place in at]

    def hidden(self, keys: Sequence[int], filling: Filling) -> Tensor:
        """Which keys each place must not see; its own are the last of them."""
        if not self.causal:
            return _later(self.order, keys, filling)
        number = torch.arange(len(keys))
        return number > number[-len(self) :, None]


@dataclass
class Sheet:
    """What a look adds to the text of a page: tokens that are owed to it, and panes, which nobody keeps.

    `start` is where the text ends and the panes begin. A sheet without panes reads its laws along the text itself: that
    of `start` and of every place behind it.
    """

    start: int
    text: tuple[int, ...]  # all that is read from left to right
    panes: Sequence[Pane]
    soft: Mapping[int, Soft]
    page: Leaf = field(default_factory=lambda: Leaf([]))
    owed: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.owed) + sum(map(len, self.panes))

    @property
    def known(self) -> int:
        """How many tokens of the text are computed."""
        return len(self.text) - len(self.owed)

    def at_text(self, filling: Filling) -> list[bool]:
        """For every place that is looked at, whether its law is read at the last token of the text."""
        if not self.panes:
            return [place == len(self.text) for place in range(self.start, len(self.text) + 1)]
        return [number is None for pane in self.panes for number in pane.reads(filling)]

    def final(self, filling: Filling) -> tuple[int, ...]:
        """The places whose laws are read at the text, where no place that is still open is seen."""
        wanted = [place for pane in self.panes for place in pane.wanted]
        return tuple(place for place, is_text in zip(wanted, self.at_text(filling), strict=False) if is_text)

    def reads(self, filling: Filling) -> list[int]:
        """The numbers of the tokens whose logits are read: first the last of those owed, if any, then for the rest."""
        owed = len(self.owed)
        reads = [owed - 1] if owed else []
        if not self.panes:
            return [*reads, *range(self.start - 1 - self.known, owed - 1)]
        first = owed
        for pane in self.panes:
            reads += (first + number for number in pane.reads(filling) if number is not None)
            first += len(pane)
        return reads

    def packed(self, first: int, filling: Filling) -> tuple[list[int], list[int], list[Row]]:
        """The tokens, their positions and the rows of the batch, whose first token has number `first`."""
        tokens, places, rows = list(self.owed), list(range(self.known, len(self.text))), list[Row]()
        before = [*self.page.slots[: self.known], *self.slots[: len(self.owed)]]
        if self.owed:
            keys = list(range(len(self.text)))
            rows.append(
                Row(first, len(self.owed), before, keys, None if filling.reads else _later(places, keys, filling))
            )
        for pane in filter(len, self.panes):
            at, count = len(tokens), len(pane)
            slots = [*before, *self.slots[at : at + count]]
            keys = [*range(len(self.text)), *pane.order]
            rows.append(Row(first + at, count, slots, keys, pane.hidden(keys, filling)))
            tokens += pane.tokens
            places += pane.order
        return tokens, places, rows

    def mixtures(self, first: int) -> list[tuple[int, Soft]]:
        """The holes that show a mixture, by the number of their token."""
        found, at = list[tuple[int, Soft]](), first + len(self.owed)
        for pane in self.panes:
            for number, (place, token) in enumerate(zip(pane.order, pane.tokens, strict=True)):
                if token == HOLE and place in self.soft:
                    found.append((at + number, self.soft[place]))
            at += len(pane)
        return found


def sheet_of(look: Look, filling: Filling) -> Sheet:
    """The sheet that answers a look."""
    canvas, places = look.canvas, look.places
    if look.along and _follows(look, filling):
        end = places[-1]  # nobody asks what comes behind the last
        return Sheet(places[0], canvas.tokens[:end], (), {})
    known = canvas.veiled(look.along) if look.along else canvas
    end = min(filling.whole(max(canvas.window[1], max(places) + 1) + filling.block - 1), len(canvas))
    holes = [i for i in range(end) if known.tokens[i] == HOLE]
    first = min([*places, *holes[:1]])
    start = min(first, canvas.window[0]) if filling.layout == "block" else filling.whole(first)
    panes = [
        _pane(canvas.veiled(look.along[n:]).tokens, start, end, (place,), filling) for n, place in enumerate(look.along)
    ]
    panes = panes or [_pane(canvas.tokens, start, end, places, filling)]
    return Sheet(start, canvas.tokens[:start], panes, look.soft)


def _pane(tokens: tuple[int, ...], start: int, end: int, wanted: tuple[int, ...], filling: Filling) -> Pane:
    causal = filling.layout == "causal"
    order = tuple(sorted(range(start, end), key=lambda i: causal and tokens[i] == HOLE))
    pane = Pane(order, tuple(tokens[i] for i in order), wanted, causal)
    own = any(number is not None for number in pane.reads(filling))
    return pane if own else Pane((), (), wanted, causal)  # the text alone tells


def _later(places: Sequence[int], keys: Sequence[int], filling: Filling) -> Tensor:
    """Which keys each place must not see: those in a later block, where there are blocks, else none."""
    if filling.layout != "blocks":
        return torch.zeros(len(places), len(keys), dtype=torch.bool)
    return torch.tensor(keys) // filling.block > torch.tensor(places)[:, None] // filling.block


def _follows(look: Look, filling: Filling) -> bool:
    """Whether the places along which a look goes are what simply comes next, and the model reads that at its text."""
    if filling.reading != "shifted" or not filling.reads:
        return False
    tokens, along, end = look.canvas.tokens, look.along, look.canvas.window[1]
    run = along == tuple(range(along[0], along[0] + len(along))) and along[0] > 0
    return run and HOLE not in tokens[: along[-1]] and all(x == HOLE for x in tokens[along[-1] + 1 : end])


def mixed(found: Sequence[tuple[int, Soft]]) -> Mixed | None:
    """The mixtures of a batch."""
    if not found:
        return None
    rows, softs = zip(*found, strict=True)
    weight = torch.tensor([soft.weight for soft in softs], dtype=torch.float64)
    return Mixed(torch.tensor(rows), torch.stack([soft.law.p for soft in softs]), weight)


def waves(asked: Sequence[Looking]) -> Iterator[list[int]]:
    """The numbers of the looks, so that no session is in a wave twice."""
    left = list(range(len(asked)))
    while left:
        wave: dict[object, int] = {}
        for n in left:
            session = asked[n].session
            wave.setdefault(n if session is None else session, n)
        yield list(wave.values())
        left = [n for n in left if n not in wave.values()]
