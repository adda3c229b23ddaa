"""STATIC: the text is one of very many items, kept in flat arrays; and a shelf whose items can be changed in use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core.asks import Decoding, Score, Scores
from ...core.chance import Chance
from ...core.claim import SEED, About, Method, claims
from ...core.errors import BadRequest
from ...core.files import read_text
from ...core.option import expect
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.plain import Plain
from ...loops.speculate import Speculate
from ..draft.lookup import Lookup
from .constraint import Constrained
from .form import Form, FormVocabulary, spelt
from .itemset import DEAD, OVER, ROOT, ItemSet

if TYPE_CHECKING:
    from .constraint import State

LARGEST = 1 << 28  # bytes of a text file of items; larger sets are compiled, and saved by `ItemSet.save`


@dataclass(frozen=True)
class _Climbing:
    """A method under a set of items: plain decoding under the same mask, stated apart, is what it must be."""

    method: Method

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        scores: Scores = yield Score()  # tells how large the vocabulary is
        items = Static(_climbing(scores.leaf[0].size, (stop.most or 1) + 3))  # drafts may run past the end
        return (yield from self.method(text, chance, Constrained(items) | warp, stop))


@lru_cache
def _climbing(vocab: int, length: int) -> ItemSet:
    """All texts of a length in which every token is the last one plus 1 or 2, and 0 follows the largest."""
    items: list[tuple[int, ...]] = [(first,) for first in range(vocab)]
    for _ in range(length - 1):
        items = [(*item, (item[-1] + up) % vocab) for item in items for up in (1, 2)[: vocab - 1]]
    return ItemSet.of(items, vocab)


def _climbs(scores: list[float], prompt: tuple[int, ...], written: tuple[int, ...]) -> list[float]:
    """The same condition on scores."""
    size = len(scores)
    allowed = {(written[-1] + up) % size for up in (1, 2)[: size - 1]} if written else range(size)
    return [score if token in allowed else -math.inf for token, score in enumerate(scores)]


def _trials() -> Iterator[Method]:
    yield _Climbing(Plain())
    yield _Climbing(Speculate(Lookup(1, 1, 2), budget=2))


@claims(
    SEED,
    trials=lambda _: _trials(),
    about=About(first=(_climbs,)),
    paper="2602.22647",
    systems=("STATIC (Vectorizing the Trie)",),
)
@dataclass(frozen=True, eq=False)
class Static(Form):
    """The text is one of the items of a set, of which there may be millions.

    A state is the set and the number of a node: p(x | text) ∝ p(x)·1[some item goes on with x], an end where an item
    ends. Whole batches of beams or rows step at once through `items.masked`, `items.candidates` and `items.step`, on
    the device where their scores are. Item sets of any lengths and vocabularies were added to the paper's; its scores,
    normalised before the mask, are what `masked` gives of log-probabilities, and decoders normalise after it.

    Claim: SEED: what is written under a set is what plain decoding writes under the same mask, stated apart. That masks
    are those of a trie built item by item, and that exact rules stay exact under it, is enumerated in the tests.
    Cost: what may follow, per token; nothing per item.
    """

    items: ItemSet

    def __post_init__(self) -> None:
        device = self.items.device.type
        expect(device == "cpu", "the item set", f"on {device}", "one on the CPU; a copy elsewhere is for whole batches")

    def start(self) -> State:
        return ItemPlace(self.items, ROOT)

    def fit(self, words: FormVocabulary) -> Static:
        stops = frozenset(self.items.stops.tolist())
        fits = (words.size, words.eos) == (self.items.vocab, stops)
        given = f"over {self.items.vocab} tokens with ends {sorted(stops)}"
        wanted = f"one over {words.size} tokens with ends {sorted(words.eos)}, those of the model's vocabulary"
        expect(fits, "the item set", given, f"{wanted}: ItemSet.of(items, vocabulary.size, vocabulary.eos)")
        return self


@dataclass(frozen=True)
class ItemPlace:
    """A beginning that some of the items share, or OVER, or DEAD: the number of its node."""

    items: ItemSet
    node: int

    def step(self, token: int) -> State:
        return ItemPlace(self.items, self._after(token))

    def mask(self) -> Tensor:
        mask = torch.zeros(self.items.vocab, dtype=torch.bool)
        mask[self._below().long()] = True
        if self.complete():
            mask[self.items.stops.long()] = True
        return mask

    def allows(self, token: int) -> bool:
        return self._after(token) != DEAD

    def forced(self) -> tuple[int, ...]:
        """All tokens up to where items part, or where one ends; after the end, the one token that can be."""
        tokens, node = list[int](), self.node
        if node == OVER and len(self.items.stops) == 1:
            return (int(self.items.stops[0]),)
        while not self.items.may_end(node):
            begin, end = self.items.edges(node)
            if end - begin != 1:
                break
            tokens.append(int(self.items.tokens[begin]))
            node = begin + 1
        return tuple(tokens)

    def complete(self) -> bool:
        return self.items.may_end(self.node)

    def _below(self) -> Tensor:
        begin, end = self.items.edges(self.node)
        return self.items.tokens[begin:end]

    def _after(self, token: int) -> int:
        begin, end = self.items.edges(self.node)
        place = begin + int(torch.searchsorted(self.items.tokens[begin:end], token))
        if place < end and int(self.items.tokens[place]) == token:
            return place + 1
        return OVER if token in self.items.stops.tolist() and self.complete() else DEAD


@dataclass(frozen=True)
class Items(Form):
    """The text is one of these, of which there may be millions: a `Static` over whatever tokens spell them."""

    texts: tuple[str, ...]

    def fit(self, words: FormVocabulary) -> Static:
        return Static(ItemSet.of((spelt(text, words) for text in self.texts), words.size, words.eos))


def items(source: str | Path | Sequence[str]) -> Form:
    """One of these texts, or of those in a file: a line each, or what `ItemSet.save` has written (.safetensors)."""
    if not isinstance(source, (str, Path)):
        return Items(tuple(source))
    if str(source).endswith(".safetensors"):
        return Static(ItemSet.load(source))
    try:
        lines = read_text(source, LARGEST).splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadRequest(f"{source} has no items ({why}); expected a text file with an item in each line") from None
    found = tuple(line for line in lines if line.strip())
    expect(bool(found), "the file of items", str(source), "at least one line that is not empty")
    return Items(found)


class Shelf(Form):
    """A set of items that can be changed while requests run.

    A request has the set that is on the shelf when its settings are fitted to the model's vocabulary, to its end; those
    after a change have the new one. An old set goes when its last request has ended.
    """

    def __init__(self, items: ItemSet) -> None:
        self._static = Static(items)

    @property
    def items(self) -> ItemSet:
        """What new requests get."""
        return self._static.items

    def swap(self, items: ItemSet) -> ItemSet:
        """Put another set on the shelf; the old one. It must be over the same vocabulary."""
        old = self.items
        fits = items.vocab == old.vocab and items.stops.tolist() == old.stops.tolist()
        given = f"over {items.vocab} tokens with ends {items.stops.tolist()}"
        expect(fits, "the item set", given, f"one over {old.vocab} tokens with ends {old.stops.tolist()}, as before")
        self._static = Static(items)  # one reference: whoever reads it has all of one set
        return old

    def fit(self, words: FormVocabulary) -> Static:
        return self._static.fit(words)
