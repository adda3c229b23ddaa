"""A causal model seen through the strings of another model's tokens, so that it can draft for any model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from ...core.asks import Scores
from ...core.law import Law, chosen
from ...core.tree import Tree
from ..engine.contracts import Causal, ScoreRequest
from .shared_vocabulary import SharedVocabularySession, Spelling, spelt

MOST = 4096  # strings whose continuations are remembered


class Reach(NamedTuple):
    """What the next inner token makes of a string.

    `inner[i]` settles on `outer[i]`, a longer outer token than the string alone had; after any of `inside` a still
    longer one may come.
    """

    inner: Tensor
    outer: Tensor
    inside: Tensor


class Stems:
    """The prefix tree of the outer tokens' strings, walked with inner tokens.

    `ends` are the inner control tokens that the outer vocabulary has too; they stand alone, never inside a string.
    """

    def __init__(self, outer: Sequence[bytes], inner: Sequence[bytes], ends: Mapping[int, int]) -> None:
        self._token = {piece: x for x, piece in reversed(list(enumerate(outer))) if piece}  # the first of equal ones
        self._outer = sorted(self._token)
        self._spelt = sorted((piece, x) for x, piece in enumerate(inner) if piece)
        self._inner = [piece for piece, _ in self._spelt]
        self._known, self._ends = set(self._inner), dict(ends)
        self._reach: dict[bytes, Reach] = {}

    def longest(self, string: bytes) -> int | None:
        """The longest outer token that the string begins with."""
        found = (self._token.get(string[:size]) for size in range(len(string), 0, -1))
        return next((token for token in found if token is not None), None)

    def reach(self, string: bytes) -> Reach:
        """What each next inner token makes of the string, as far as it makes anything new of it."""
        found = self._reach.get(string)
        if found is None:
            found = self._reached(string)
            if len(self._reach) >= MOST:
                self._reach.clear()
            self._reach[string] = found
        return found

    def _reached(self, string: bytes) -> Reach:
        settled: dict[int, int] = {} if string else dict(self._ends)
        inside: set[bytes] = set()
        longer = [piece for piece in _starting(self._outer, string) if len(piece) > len(string)]
        for piece in sorted(longer, key=len):  # a longer token takes from a shorter one
            rest = piece[len(string) :]
            low = bisect_left(self._inner, rest)
            for _, x in self._spelt[low : low + len(_starting(self._inner, rest))]:
                settled[x] = self._token[piece]
            inside.update(part for size in range(1, len(rest)) if (part := rest[:size]) in self._known)
        within = [x for piece, x in self._spelt if piece in inside] if inside else []
        columns = ([*settled], [*settled.values()], within)
        return Reach(*(torch.tensor(column, dtype=torch.long) for column in columns))


def _starting(pieces: list[bytes], string: bytes) -> list[bytes]:
    """Those of the sorted pieces that begin with the string."""
    body = string.rstrip(b"\xff")
    high = bisect_left(pieces, body[:-1] + bytes([body[-1] + 1])) if body else len(pieces)
    return pieces[bisect_left(pieces, string) : high]


Key: TypeAlias = tuple[int, tuple[int, ...]]  # a leaf and the outer tokens below it


class StringSpelling(Spelling, Protocol):
    """A spelling that also knows the strings of all tokens."""

    @property
    def strings(self) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """The bytes of every outer token, and of every inner one; none for control tokens."""

    @property
    def ends(self) -> Mapping[int, int]:
        """Inner control tokens that the outer vocabulary has too."""


class StringLevelDraft:
    """A causal model in outer tokens whose law is that of the first outer token of the text it would write.

    ψ(t) = Pr(t is the longest outer token that the written text begins with), summed over all ways to write it with
    inner tokens, by a walk through the prefix tree of the outer strings. Every inner token that may go on inside the
    tree is a branch, and a branch takes a row of a forward; only the `width` heaviest are followed, for `looks`
    forwards in all. A branch that is not followed counts as if the text ended there. So ψ is a law, whatever the
    bounds, and whoever draws from it stays exact; with looks = 1 no text is followed and inner tokens are only cut.
    """

    def __init__(self, model: Causal, spelling: StringSpelling, looks: int = 2, width: int = 4) -> None:
        self.model, self.spelling, self.looks, self.width = model, spelling, looks, width
        self.vocab, self.context, self.room = spelling.size, model.context, model.room
        self._stems: Stems | None = None

    @property
    def stems(self) -> Stems:
        """The prefix tree, made when it is first needed: it takes a second for a large vocabulary."""
        if self._stems is None:
            self._stems = Stems(*self.spelling.strings, self.spelling.ends)
        return self._stems

    def open(self, text: Sequence[int], owner: str = "") -> StringLevelSession:
        return StringLevelSession(
            SharedVocabularySession(self.model.open(self.spelling.read(text), owner), self.spelling)
        )

    def forget(self) -> None:
        self.model.forget()

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        """Answer all these in at most `looks` forwards of the inner model; what is known needs no second one."""
        asks = [_Ask(ask, self.spelling) for ask in asked]
        for ask, answer in zip(asks, self.model.score([ask.inner() for ask in asks]), strict=True):
            ask.begin(answer, self)
        for _ in range(self.looks - 1):
            busy = [ask for ask in asks if any(place.weighing.branches for place in ask.places)]
            if not busy:
                break
            for ask, answer in zip(busy, self.model.score([ask.inner() for ask in busy]), strict=True):
                ask.follow(answer)
        return [ask.scores() for ask in asks]


class StringLevelSession:
    """A session of the inner model, and the laws already known below its leaves."""

    def __init__(self, inner: SharedVocabularySession) -> None:
        self.inner = inner
        self.known: dict[Key, Law] = {}

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        self.known.clear()
        self.inner.keep(tree, nodes, extra)

    def fork(self) -> StringLevelSession:
        return StringLevelSession(self.inner.fork())

    def close(self) -> None:
        self.inner.close()


class PrefixBranch(NamedTuple):
    """Inner tokens that may go on inside the prefix tree: their string, their mass, and the token it counts for now."""

    tokens: tuple[int, ...]
    string: bytes
    mass: float
    counted: int | None


class Weighing:
    """ψ of one context in the making."""

    def __init__(self, by: StringLevelDraft, law: Law) -> None:
        self._by = by
        self.psi = torch.zeros(by.vocab, dtype=law.p.dtype, device=law.p.device)
        self.branches: list[PrefixBranch] = []
        self._follow([(PrefixBranch((), b"", 1.0, None), law)])

    def law(self) -> Law:
        """ψ as far as it has been followed."""
        return Law(self.psi.clamp_min(0).log())

    def follow(self, laws: Sequence[Law]) -> None:
        """Go one inner token further along every branch."""
        self._follow(list(zip(self.branches, laws, strict=True)))

    def _follow(self, grown: Sequence[tuple[PrefixBranch, Law]]) -> None:
        longer: list[PrefixBranch] = []
        for branch, law in grown:
            inner, outer, inside = (x.to(self.psi.device) for x in self._by.stems.reach(branch.string))
            mass = branch.mass * law.p
            if len(inner):
                self.psi.index_add_(0, outer, mass[inner])
                if branch.counted is not None:
                    self.psi[branch.counted] -= mass[inner].sum()
            longer += self._heaviest(branch, mass, inside)
        self.branches = sorted(longer, key=lambda b: -b.mass)[: self._by.width]

    def _heaviest(self, branch: PrefixBranch, mass: Tensor, inside: Tensor) -> list[PrefixBranch]:
        if not len(inside):
            return []
        masses, order = mass[inside].topk(min(self._by.width, len(inside)))
        found = []
        for x, own in zip(inside[order].tolist(), masses.tolist(), strict=True):
            string = branch.string + self._by.spelling.strings[1][x]
            if own > 0:
                found.append(PrefixBranch((*branch.tokens, x), string, own, self._by.stems.longest(string)))
        return found


class _Place(NamedTuple):
    """A context whose law is being made: where its inner text ends, and how far ψ is."""

    key: Key
    end: int
    weighing: Weighing


class _Ask:
    """One session's tree, spelt with inner tokens, with all places in it whose laws are not known yet."""

    def __init__(self, ask: ScoreRequest, spelling: Spelling) -> None:
        assert isinstance(ask.session, StringLevelSession)
        self.session, self.tree = ask.session, ask.tree
        self.spelt, self.ends = spelt(ask.tree, spelling)
        self.places: list[_Place] = []
        self.leaves, self.rows = 0, 0
        self._grown: list[list[int]] = []

    def inner(self) -> ScoreRequest:
        """The spelt tree, with every branch that is to be followed."""
        tree, self._grown = self.spelt, []
        for place in self.places:
            ends = []
            for branch in place.weighing.branches:
                end = place.end
                for x in branch.tokens:
                    tree, end = tree.grow(chosen(x), end)
                ends.append(end)
            self._grown.append(ends)
        return ScoreRequest(self.session.inner.inner, tree)

    def begin(self, answer: Scores, by: StringLevelDraft) -> None:
        self.leaves, self.rows = len(answer.leaf), answer.rows
        seen = set(self.session.known)
        for node in self._nodes():
            if (key := self._key(node)) not in seen:
                seen.add(key)
                end = self.ends[node] if node >= 0 else node
                self.places.append(_Place(key, end, Weighing(by, answer.law(end))))

    def follow(self, answer: Scores) -> None:
        self.rows += answer.rows
        for place, ends in zip(self.places, self._grown, strict=True):
            place.weighing.follow([answer.law(end) for end in ends])

    def scores(self) -> Scores:
        known = self.session.known
        known.update({place.key: place.weighing.law() for place in self.places})
        laws = [known[self._key(node)] for node in self._nodes()]
        return Scores(laws[: len(self.tree)], laws[len(self.tree) :], rows=self.rows)

    def _nodes(self) -> list[int]:
        return [*range(len(self.tree)), *(~r for r in range(self.leaves))]

    def _key(self, node: int) -> Key:
        return self.tree.leaf(node), self.tree.tokens(self.tree.path(node))
