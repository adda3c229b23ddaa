"""Where a text ends: tokens, strings, lengths and time, cut once, at the first, wherever in a block it stands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .tree import NOBODY, Tree


class Tail(NamedTuple):
    """What a stop remembers of the text so far: how many tokens, its last bytes, and when it must end.

    `skip` are the bytes to come that are no part of it.
    """

    tokens: int
    bytes: bytes
    deadline: float | None
    skip: int = 0


class Cut(NamedTuple):
    """The tokens that stay, the reason to stop after them if any, and the bytes that a stop string takes back."""

    kept: tuple[int, ...]
    reason: str | None
    tail: Tail
    trim: int = 0


@dataclass(frozen=True)
class Stop:
    """When to stop.

    `tokens`: after any of these ids (they stay in the tokens). `strings`: when the text contains one of these, however
    the tokens split it; the text then ends before it. `most`: after this many tokens; beyond these there is room for
    `spare` drafted ones. `seconds`: with the first tokens that come after this much time, all of them, or, by the
    engine, before the next forward. `piece` gives the bytes of a token, and is needed for strings. No string is found
    in the first `skip` bytes, which are the prompt's own.

    `told` is of how many best tokens of a law somebody is told, below 0 if nobody asks: whoever keeps laws until a text
    has ended need not keep more. By default whole laws are looked at.
    """

    tokens: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()
    most: int | None = None
    spare: float = math.inf
    seconds: float | None = None
    piece: Callable[[int], bytes] | None = None
    skip: int = 0
    told: float = math.inf
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if self.strings and self.piece is None:
            raise ValueError("stop strings need `piece`, which gives the bytes of a token (vocabulary.piece)")
        if "" in self.strings:
            raise ValueError("a stop string must not be empty")

    def start(self) -> Tail:
        """Nothing written yet; the clock starts."""
        return Tail(0, b"", None if self.seconds is None else self.clock() + self.seconds, self.skip)

    def left(self, tail: Tail) -> float:
        """How many tokens may still follow."""
        return math.inf if self.most is None else self.most - tail.tokens

    def cut(self, tail: Tail, new: Sequence[int]) -> Cut:
        """The part of `new` up to and including the first token that ends the text; time ends it after all of them."""
        if not self.strings and tail.deadline is None:
            return self._counted(tail, new)
        needles = [s.encode() for s in self.strings]
        reach = max((len(n) for n in needles), default=1) - 1  # bytes that may begin a stop string
        for i, token in enumerate(new, 1):
            count, text, trim, skip = tail.tokens + 1, tail.bytes, 0, tail.skip
            if needles and self.piece is not None:
                piece = self.piece(token)
                text, skip = text + piece[skip:], max(0, skip - len(piece))
                # the first to be complete wins, then the longest: so the text does not depend on how tokens split it
                found = [(at + len(n), at) for n in needles if (at := text.find(n)) >= 0]
                trim = len(text) - min(found)[1] if found else 0
                text = text[len(text) - reach :] if len(text) > reach else text
            tail = Tail(count, text, tail.deadline, skip)
            reason = self._reason(token, trim, tail)
            if reason:
                return Cut(tuple(new[:i]), reason, tail, trim)
        late = bool(new) and tail.deadline is not None and self.clock() >= tail.deadline
        return Cut(tuple(new), "time" if late else None, tail)

    def prune(self, tail: Tail, tree: Tree) -> tuple[Tree, frozenset[int]]:
        """A draft without what hangs behind a token that ends the text, on whichever path; and the nodes that end it.

        Nothing of that could be kept, and warps may have no law for it. Whether a node goes is decided by the tokens
        that lead to it, so every verifier stays exact.
        """
        if not self.strings and self.tokens.isdisjoint(tree.tokens(range(len(tree)))):
            return tree, NOBODY
        tails: dict[int, Tail] = {}  # of the nodes after which the text goes on
        kept: list[int] = []
        last: list[int] = []
        for node, (drawn, parent) in enumerate(zip(tree.drawn, tree.parent, strict=True)):
            above = tail if parent < 0 else tails.get(parent)
            if above is None:
                continue
            kept.append(node)
            cut = self.cut(above, (drawn.token,)) if drawn.token >= 0 else None  # −1 is a hole
            if cut is None or cut.reason is None:
                tails[node] = above if cut is None else cut.tail
            else:
                last.append(len(kept) - 1)
        return (tree if len(kept) == len(tree) else tree.only(kept)), frozenset(last)

    def _counted(self, tail: Tail, new: Sequence[int]) -> Cut:
        """The same where neither text nor time can end it, without a look at every token."""
        end, reason = len(new), None
        if self.most is not None and 0 < (left := max(1, self.most - tail.tokens)) <= end:
            end, reason = left, "length"
        if not self.tokens.isdisjoint(new):
            first = next(i for i, token in enumerate(new, 1) if token in self.tokens)
            if first <= end:
                end, reason = first, "token"
        return Cut(tuple(new[:end]), reason, Tail(tail.tokens + end, tail.bytes, None))

    def _reason(self, token: int, trim: int, tail: Tail) -> str | None:
        if token in self.tokens:
            return "token"
        if trim:
            return "string"
        return "length" if self.most is not None and tail.tokens >= self.most else None
