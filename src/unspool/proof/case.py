"""Cases: small worlds in which a decoder's whole output law can be enumerated, drawn by Hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE

from ..core.stop import Stop, Tail
from ..core.tree import Tree
from ..core.warp import Warp
from ..models.align import Alignment, align
from ..models.vocabulary import Vocabulary
from ..runtime.cache.table_model import Table
from ..runtime.draft_bridge.retokenised import RetokenisedDraft
from ..runtime.draft_bridge.string_level import StringLevelDraft
from ..runtime.engine.contracts import Causal
from .shaping import BRACKETS, DEAD_END, EMPTYING, FORBIDDING, PLAIN, WARPS, warp_of

TARGET, DRAFT = ("a", "b", "ab", "c", "bc"), ("a", "b", "ba", "c")


@cache
def spelling(vocab: int) -> Alignment:
    """The target's tokens are the first `vocab` of a, b, ab, c, bc; the draft's are a, b, ba, and c."""
    return align(_vocabulary(TARGET[:vocab]), _vocabulary(DRAFT if vocab > 3 else DRAFT[:3]))


def _vocabulary(words: tuple[str, ...]) -> Vocabulary:
    merges = [(word[0], word[1]) for word in words if len(word) == 2]
    tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, merges))
    return Vocabulary(tokenizer, [word.encode() for word in words], special=(), eos=())


@dataclass(frozen=True)
class Blind(Stop):
    """A stop that drafts run past, so that what was verified must be cut: it does not say how much may still follow."""

    def left(self, tail: Tail) -> float:
        return float("inf")

    def prune(self, tail: Tail, tree: Tree) -> tuple[Tree, frozenset[int]]:
        return tree, frozenset()


@dataclass(frozen=True)
class Case:
    """Two table models, a prompt, a warp and a stop.

    A table is a few rows of small integer weights; the text so far picks the row. Small integers make zeros, ties and
    p = q common, which is where rules go wrong.
    """

    vocab: int
    target: tuple[tuple[int, ...], ...]
    draft: tuple[tuple[int, ...], ...]
    prompt: tuple[int, ...]
    warp: str
    end: int | None  # a token that stops
    until: str | None  # a string that stops; tokens are spelt a, b, c, d, e
    most: int
    blind: bool = True  # whether drafts may run past the last token

    def tables(self) -> dict[str, Table]:
        """The two models, and a third for cascades: the draft's rows in another order; these are the target's heads."""
        target = _table(self.vocab, self.target, 7)
        draft, small = _table(self.vocab, self.draft, 5), _table(self.vocab, self.draft[::-1], 3)
        target.heads = draft, small
        return {"target": target, "draft": draft, "small": small}

    def models(self, tables: dict[str, Table]) -> dict[str, Causal]:
        """The tables, and the draft once more with a tokenizer of its own: as prose, and by strings."""
        spelt = spelling(self.vocab)
        rows = tuple(_cut((*row, row[0] + 1), spelt.draft.size) for row in self.draft)
        own = _table(spelt.draft.size, rows, 5)
        return {**tables, "slem": RetokenisedDraft(own, spelt), "slrs": StringLevelDraft(own, spelt)}

    def stop(self) -> Stop:
        """Stop after `most` tokens, at the end token, or when the string appears."""
        tokens = frozenset() if self.end is None else frozenset({self.end})
        strings = () if self.until is None else (self.until,)
        # where behind the end of a text warps may have no law, drafts must not get there
        sparse = any(0 in row for row in self.target)
        emptied = self.warp.startswith((*EMPTYING, *FORBIDDING) if sparse else EMPTYING)
        kind = Blind if self.blind and not emptied else Stop
        return kind(tokens, strings, self.most, piece=lambda token: b"abcde"[token : token + 1])

    def shaping(self) -> Warp:
        """What shapes the laws of this case."""
        return warp_of(self.warp, self.vocab)

    def __str__(self) -> str:
        lines = [f"vocabulary 0..{self.vocab - 1}, prompt {list(self.prompt)}, warp: {self.warp}"]
        stops = [f"after {self.most} tokens"]
        stops += [] if self.end is None else [f"at token {self.end}"]
        stops += [] if self.until is None else [f"at {self.until!r} (tokens are spelt a, b, c, d, e)"]
        lines.append("stop " + " or ".join(stops) + ("" if self.blind else "; drafts go no further"))
        lines.append("target weights: " + "  ".join(map(str, map(list, self.target))) + "  (row by a hash of the text)")
        lines.append("draft weights:  " + "  ".join(map(str, map(list, self.draft))))
        return "\n".join(lines)


def _cut(row: tuple[int, ...], size: int) -> tuple[int, ...]:
    return row[:size] if any(row[:size]) else (1,) * size


def _table(vocab: int, rows: tuple[tuple[int, ...], ...], mixer: int) -> Table:
    def weights(text: tuple[int, ...]) -> tuple[int, ...]:
        number = 0
        for token in text:
            number = number * mixer + token + 1
        return rows[number % len(rows)]

    return Table(vocab, weights)


@st.composite
def cases(draw: st.DrawFn, warps: tuple[str, ...] = WARPS) -> Case:
    """Any small case: half of all rows give every token a chance, and half of all cases have no warp."""
    vocab = draw(st.sampled_from([3, 2]))
    full = st.tuples(*[st.integers(1, 7)] * vocab)
    sparse = st.tuples(*[st.integers(0, 2)] * vocab).filter(any)
    rows = st.lists(full | sparse, min_size=1, max_size=4).map(tuple)
    target = draw(rows)
    return Case(
        vocab=vocab,
        target=target,
        draft=draw(rows | rows | st.just(target)),
        prompt=tuple(draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=3))),
        warp=draw(st.just(PLAIN) | st.sampled_from(warps)),
        end=draw(st.none() | st.none() | st.integers(0, vocab - 1)),
        until=draw(st.none() | st.none() | st.text("abc"[:vocab], min_size=1, max_size=2)),
        most=draw(st.sampled_from([2, 3, 1])),
        blind=draw(st.sampled_from([True, True, False])),
    )


_BASE = Case(2, ((3, 1), (1, 2), (2, 5)), ((1, 2), (4, 1), (1, 1)), (0,), PLAIN, None, None, 3)
_WIDE = Case(3, ((3, 2, 1), (1, 4, 2), (2, 1, 5)), ((1, 2, 3), (4, 1, 1)), (0, 1), PLAIN, None, None, 2)
_MANY = Case(5, ((1, 0, 3, 2, 4), (2, 1, 0, 5, 1)), ((3, 0, 1, 2, 1), (1, 1, 2, 0, 1)), (2,), PLAIN, None, None, 1)
_LONG = Case(
    5,
    ((0, 2, 0, 0, 2), (0, 0, 2, 0, 0), (0, 0, 0, 2, 0), (0, 0, 0, 1, 0), (0, 1, 0, 0, 0), (1, 0, 0, 0, 3)),
    ((0, 1, 0, 0, 3), (0, 0, 2, 0, 0), (0, 1, 0, 0, 1), (1, 0, 0, 0, 1)),
    (0,),
    PLAIN,
    None,
    None,
    6,
)

STANDING: tuple[Case, ...] = (
    _BASE,
    _WIDE,
    _MANY,
    _LONG,
    replace(_MANY, draft=_MANY.target),
    replace(_LONG, draft=_LONG.target),
    replace(_WIDE, draft=_WIDE.target),
    replace(_WIDE, target=((0, 2, 1), (1, 0, 2)), draft=((2, 1, 0), (0, 1, 1))),
    replace(_BASE, end=1),
    replace(_BASE, until="ab"),
    replace(_WIDE, blind=False),
    replace(_BASE, warp="no 1 among the first two", end=1),
    *(replace(_BASE, warp=warp) for warp in WARPS if warp != PLAIN),
    *(replace(_WIDE, warp=warp) for warp in WARPS if warp.startswith((BRACKETS, *EMPTYING))),
    replace(_BASE, warp=BRACKETS, until="bb", most=4),
    replace(_WIDE, warp=BRACKETS, end=1, until="aa", most=3),
    replace(_WIDE, warp=DEAD_END, end=2, until="b"),
    replace(_WIDE, warp=f"{DEAD_END}, temperature 1.5, top-p 0.7", end=0, until="b"),
)
"""Cases that every proof includes: full support, p = q, crossed zeros, stops, every warp, many tokens, long texts.

The last of them have a constraint, a token and a string that end texts, together, which is rarely drawn.
"""

UNSHAPED = tuple(replace(case, most=min(case.most, 3)) for case in STANDING if case.warp == PLAIN)
"""Those of them for claims about a model's own law, which are made of canvases: theirs have three places."""
