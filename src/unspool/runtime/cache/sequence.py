"""The texts of one request in a KV cache: tokens, the slots of those already computed, and drafts below their ends.

An index of beginnings finds the computed text that begins like a new one, without a search.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from ...core.law import Law
from ...core.tree import Tree

if TYPE_CHECKING:
    from .cached_model import CachedModel

SHORT, BLOCK = 64, 16  # beginnings up to so many tokens are all indexed, longer ones by blocks of so many


@dataclass
class DraftNode:
    """A drafted token whose keys, values and law have been computed."""

    token: int
    slot: int
    place: int  # its position in the text
    order: int  # its number among all drafts below the leaf, which is also the order of their keys
    above: CachedSequence | DraftNode
    law: Law
    hidden: Mapping[int, Tensor]
    kids: dict[int, DraftNode] = field(default_factory=dict)


@dataclass(eq=False)
class CachedSequence:
    """A kept text. The first `len(slots)` of its tokens are computed; the rest is owed to the next forward."""

    tokens: list[int]
    slots: list[int] = field(default_factory=list)
    law: Law | None = None  # after the last token, when nothing is owed
    hidden: Mapping[int, Tensor] = field(default_factory=dict)
    kids: dict[int, DraftNode] = field(default_factory=dict)
    drafts: list[DraftNode] = field(default_factory=list)  # every node below, in the order of their keys
    owner: str = ""  # whose text it is: others do not find it

    @property
    def owed(self) -> list[int]:
        """Tokens that no forward has seen yet."""
        return self.tokens[len(self.slots) :]

    def descend(self, tokens: tuple[int, ...]) -> Iterator[DraftNode]:
        """The computed nodes along these tokens, as far as there are any."""
        kids = self.kids
        for token in tokens:
            if token not in kids:
                return
            yield kids[token]
            kids = kids[token].kids


def unlink(leaf: CachedSequence) -> None:
    """Clear links from parent to child, so that drafted nodes and their logits are freed by reference counts."""
    for node in leaf.drafts:
        node.kids = {}


class CachedSession:
    """The kept leaves of one request."""

    def __init__(self, model: CachedModel, leaves: list[CachedSequence]) -> None:
        self._model, self.leaves = model, leaves
        self._closed = False

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        """Make these texts the leaves; a single text is extended in place, several share their slots."""
        if len(nodes) == 1 and len(self.leaves) == 1:
            self._extend(tree.tokens(tree.path(nodes[0])), extra[0])
            return
        slots = self._model.slots
        new = [self._branch(tree, node, token) for node, token in zip(nodes, extra, strict=True)]
        for leaf in new:
            slots.share(leaf.slots)
        for leaf in self.leaves:
            slots.drop([node.slot for node in leaf.drafts])
            unlink(leaf)
            self._model.release(leaf)
        self.leaves = new

    def _extend(self, path: tuple[int, ...], extra: int | None) -> None:
        (leaf,), slots = self.leaves, self._model.slots
        computed = list(leaf.descend(path))
        kept = [node.slot for node in computed]
        if kept:
            # Neighbouring slots are read without a copy, so accepted tokens move down to where the text ends.
            target = list(range(leaf.slots[-1] + 1, leaf.slots[-1] + 1 + len(kept)))
            if kept != target and not slots.gathers and set(target) <= {node.slot for node in leaf.drafts}:
                slots.move(kept, target)
                kept = target
        slots.drop([node.slot for node in leaf.drafts if node.slot not in kept])
        unlink(leaf)
        if path or extra is not None:
            ends = len(computed) == len(path) and extra is None
            leaf.law, leaf.hidden = (computed[-1].law, computed[-1].hidden) if ends else (None, {})
        leaf.tokens += path if extra is None else (*path, extra)
        leaf.slots += kept
        leaf.kids, leaf.drafts = {}, []

    def _branch(self, tree: Tree, node: int, extra: int | None) -> CachedSequence:
        leaf, path = self.leaves[tree.leaf(node)], tree.tokens(tree.path(node))
        computed = list(leaf.descend(path))
        new = CachedSequence([*leaf.tokens, *path], [*leaf.slots, *(n.slot for n in computed)], owner=leaf.owner)
        if extra is not None:
            new.tokens.append(extra)
        elif len(computed) == len(path):
            last = computed[-1] if computed else leaf
            new.law, new.hidden = last.law, last.hidden
        return new

    def fork(self) -> CachedSession:
        leaves = [CachedSequence(list(x.tokens), list(x.slots), x.law, x.hidden, owner=x.owner) for x in self.leaves]
        for leaf in leaves:
            self._model.slots.share(leaf.slots)
        return CachedSession(self._model, leaves)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._model.closed(self)


class PrefixIndex:
    """For beginnings of noted texts, the text of the same owner that was last noted to begin so.

    Indexed are the beginnings of up to `SHORT` tokens, and beyond that those of whole blocks: the text that is found
    there is compared token by token from there on. Texts are held weakly, and only what is still computed of them is
    given out.

    Cost: one entry per block of a noted text, one look-up per block of a new one.
    """

    def __init__(self) -> None:
        self._texts: dict[int, weakref.ref[CachedSequence]] = {}
        self._swept = 1024  # entries at which those of texts that are gone are swept out

    def note(self, leaf: CachedSequence) -> None:
        """Take note of a text as far as it is computed."""
        here, texts = weakref.ref(leaf), self._texts
        for _, key in _beginnings(leaf.tokens, len(leaf.slots), leaf.owner):
            texts[key] = here
        if len(texts) > self._swept:
            self._texts = {key: text for key, text in texts.items() if text() is not None}
            self._swept = max(1024, 2 * len(self._texts))

    def longest(self, tokens: Sequence[int], most: int, owner: str = "") -> list[int]:
        """The slots of the longest beginning of `tokens`, of at most `most`, that some text of `owner` has computed."""
        found, length = None, 0
        for end, key in _beginnings(tokens, most, owner):
            noted = self._texts.get(key)
            leaf = None if noted is None else noted()
            if leaf is None or len(leaf.slots) < end:
                break
            found, length = leaf, end
        if found is None or found.owner != owner or found.tokens[:length] != list(tokens[:length]):
            return []  # different texts may have equal keys
        rest = zip(found.tokens[length : len(found.slots)], tokens[length:most], strict=False)
        length += next((i for i, (a, b) in enumerate(rest) if a != b), min(len(found.slots), most) - length)
        return found.slots[:length]


def _beginnings(tokens: Sequence[int], most: int, owner: str) -> Iterator[tuple[int, int]]:
    """The indexed sizes of a text's beginnings, up to `most`, each with a key of what the text is so far."""
    key, at = _start(owner), 0
    while (end := at + (1 if at < SHORT else BLOCK)) <= most:
        key, at = hash((key, *tokens[at:end])), end
        yield at, key


def _start(owner: str) -> int:
    return hash(owner) if owner else 0
