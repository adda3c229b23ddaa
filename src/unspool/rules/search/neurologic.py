"""Beam search for texts that must say something: beams by what they have said, and a look at what they may say yet."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.asks import Ask, Decoding, GiveWay
from ...core.chance import Chance
from ...core.claim import HEURISTIC, Branching, Watchable, claims
from ...core.errors import BadRequest
from ...core.law import Law
from ...core.option import expect, real, whole
from ...core.stop import Stop
from ...core.warp.never_say import NeverSay, pieces_of
from ...core.warp.warp import Warp
from ..constrain.combine import And
from ..constrain.constraint import Constrained, Constraint
from ..constrain.form import FormVocabulary, spelt
from ..constrain.lexical import ClauseState, Keywords, Lexical
from ..constrain.parted import parted
from .ahead import Ahead, Chain, Greedy, WatchedChains, outlook
from .beam import BeamPool
from .beam_cache import BeamCache
from .candidates import Leaders, leading, worth_of
from .length_norm import LengthNorm, Patience, Power, likely
from .search_text import Text, told, without_greedy


class Clauses:
    """Keeps account of all texts, each from what is known of its beginning."""

    def __init__(self, lexical: Lexical | None) -> None:
        self.lexical = lexical
        self._known: dict[tuple[int, ...], ClauseState] = {}
        self._chains: dict[bytes, tuple[Chain, ...]] = {}

    def within(self, texts: list[Text], tolerance: int) -> list[Text]:
        """Those that have said nearly as many clauses as any; a text that is cut off early only if none is whole."""
        most = max((self.met(text) for text in texts), default=0)
        whole_one = any(text.reason and not self.unsaid(text) for text in texts)
        near = [text for text in texts if self.met(text) >= most - tolerance]
        return [text for text in near if not (whole_one and text.reason and self.unsaid(text))]

    def in_turn(self, texts: Sequence[Text], ranks: Sequence[float]) -> list[Text]:
        """The best of every set of clauses, then the second best of each, and so on."""
        groups: dict[int, list[int]] = {}
        for i in sorted(range(len(texts)), key=lambda i: -ranks[i]):
            groups.setdefault(self._have(texts[i]), []).append(i)
        turns = range(max(map(len, groups.values()), default=0))
        return [texts[group[turn]] for turn in turns for group in groups.values() if turn < len(group)]

    def met(self, text: Text) -> int:
        """How many clauses a text has said."""
        return self._have(text).bit_count()

    def unsaid(self, text: Text) -> bool:
        """Whether there is something left to say."""
        return self.lexical is not None and self._have(text) != self.lexical.all

    def advances(self, text: Text, token: int) -> bool:
        """Whether a token says a phrase that was not said, or all of it belongs to one that it begins or continues."""
        state, lexical = self._state(text), self.lexical
        if state is None or lexical is None or token in lexical.words.eos:
            return False
        piece = lexical.words.piece(token)
        node, have = lexical.read(state.node, state.have, piece)
        size = len(piece.lstrip())
        return have != state.have or (
            size > 0 and any(lexical.under_way(node, phrase) >= size for phrase in lexical.unmet(have))
        )

    def view(self, text: Text) -> WatchedChains:
        """The phrases that a text has not said, and what is missing of those that it has begun."""
        state, lexical = self._state(text), self.lexical
        assert state is not None
        assert lexical is not None  # there are clauses if something is unsaid
        unmet = lexical.unmet(state.have)
        begun = [(phrase, size) for phrase in unmet if (size := lexical.under_way(state.node, phrase))]
        now = [chain for phrase, size in begun for chain in self._spelt(phrase[size:])[:1]]
        return WatchedChains(text, now, [chain for phrase in unmet for chain in self._spelt(phrase)])

    def _spelt(self, phrase: bytes) -> tuple[Chain, ...]:
        """A phrase in tokens, as it stands and as a word of its own."""
        if phrase not in self._chains:
            assert self.lexical is not None
            text = phrase.decode("utf-8", "ignore")
            both = [spelt(written, self.lexical.words) for written in (text, f" {text}") if text]
            self._chains[phrase] = tuple(dict.fromkeys(chain for chain in both if chain))
        return self._chains[phrase]

    def _have(self, text: Text) -> int:
        state = self._state(text)
        return 0 if state is None else state.have

    def _state(self, text: Text) -> ClauseState | None:
        """What was found in a text, from what was found in its beginning."""
        if self.lexical is None:
            return None
        if text.tokens not in self._known:
            here = self._known.get(text.tokens[:-1], ClauseState(self.lexical, 0, 0))
            rest = text.tokens[-1:] if text.tokens[:-1] in self._known else text.tokens
            data = b"".join(map(self.lexical.words.piece, rest))
            self._known[text.tokens] = ClauseState(self.lexical, *self.lexical.read(here.node, here.have, data))
        return self._known[text.tokens]


@claims(
    HEURISTIC,
    trials=lambda rule: [rule(4)],
    paper="2112.08726",
    systems=("NeuroLogic A*esque (greedy, beam and sampling lookahead)", "NeuroLogic decoding"),
)
@dataclass(frozen=True)
class Neurologic(Branching, Watchable):
    """Of the continuations of `width` texts keep the best of each set of clauses said, ranked by log p and by outlook.

    The clauses are the request's keywords, or those of `demand`. Candidates are the best continuations of all, and of
    each text its `width` best and whatever begins or continues a phrase not yet said among its `prune` best. Those
    that have said fewer than the most less `tolerance` clauses are dropped. The others are ranked by
    log p/length + `alpha`·h, where h = max over phrases z not yet said and places t up to `ahead` tokens on of
    mean_j log p(z_j | text, ahead to t, z to j); a phrase under way counts as what is missing of it, right here. h is 0
    where all is said. Then the best of every set of clauses is taken, then the second best of each, until there are
    `width`. A text ends only when all is said; finished ones are compared by log p / length(tokens). What is `never`
    to be said, the paper's negative clauses, no text says, whichever tokens would spell it. The paper's soft
    lookahead, which mixes embeddings, is not offered; its beams are 20.

    Claim: HEURISTIC. Without keywords it is beam search, and with one beam greedy decoding. With no steps ahead, or
    `alpha` 0, it is NeuroLogic decoding.
    Cost: per token a row for each text and, for each candidate, `ahead` rows and one for each token of a phrase but its
    last; at most `rows` in all, then the best so far.
    """

    RANKS = True

    width: int = 4
    ahead: Ahead = Greedy(5)  # noqa: RUF009  (frozen)
    alpha: float = 0.25
    prune: int = 50
    tolerance: int = 2
    length: LengthNorm = Power(0.2)  # noqa: RUF009
    patience: Patience = likely
    rows: int = 0
    demand: Keywords | Lexical | None = None
    never: tuple[str, ...] | NeverSay = ()

    def __post_init__(self) -> None:
        expect(whole(self.width, 1), "neurologic:width", self.width, "a whole number of texts from 1 on")
        expect(real(self.alpha, 0), "neurologic:alpha", self.alpha, "a finite number from 0 on; usual is 0.25")
        expect(whole(self.prune, 1), "neurologic:prune", self.prune, "a whole number of tokens from 1 on")
        expect(whole(self.tolerance, 0), "neurologic:tolerance", self.tolerance, "a whole number of clauses from 0 on")
        BeamCache(self.rows)

    @property
    def texts(self) -> int:
        return 3 * self.width

    def fit(self, vocabulary: FormVocabulary) -> Neurologic:
        demand = self.demand.fit(vocabulary) if isinstance(self.demand, Keywords) else self.demand
        never = self.never
        if never and not isinstance(never, NeverSay):
            never = NeverSay(tuple(phrase.encode() for phrase in never), pieces_of(vocabulary))
        return replace(self, demand=demand, never=never)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        grove, pool = BeamCache(self.rows), BeamPool(self.width, self.length, self.patience)
        if self.demand is not None:
            if isinstance(self.demand, Keywords):
                raise BadRequest("keywords have to be fitted to a vocabulary: give keywords(…).fit(vocabulary)")
            warp = Constrained(self.demand) | warp
        if self.never:
            if not isinstance(self.never, NeverSay):
                raise BadRequest("what is never to be said has to be fitted to a vocabulary: run the method by name")
            warp = self.never | warp
        clauses = _clauses(parted(warp)[1])
        pool.live = [Text.begin(text, without_greedy(warp), stop).ranked(0.0)]
        found: list[Text] = []
        try:
            while grove.affords(pool.live):
                raws = yield from grove.score(pool.live)
                texts = yield from self._candidates(pool, raws, clauses, stop)
                texts = clauses.within(texts, self.tolerance)
                ranks = [text.logp / len(text.tokens) for text in texts]
                if self.alpha and self.ahead.steps:
                    futures = yield from self._futures(grove, clauses, texts, chance, stop)
                    ranks = [rank + self.alpha * future for rank, future in zip(ranks, futures, strict=True)]
                pool.take(clauses.in_turn(texts, ranks), stop)
        finally:
            found += sorted(pool.found(), key=lambda text: (-clauses.met(text), -text.score))
            self.watch(found)
        return (yield from told(found, grove.forwards))

    def _candidates(
        self, pool: BeamPool, raws: Sequence[Law], clauses: Clauses, stop: Stop
    ) -> Generator[Ask, Any, list[Text]]:
        """The continuations that may be gone on with, best first."""
        leaders, laws, own = Leaders(pool.room(stop)), list[Law](), dict[tuple[int, int], float]()
        for row, (text, raw) in enumerate(zip(pool.live, raws, strict=True)):
            laws.append(text.prefix.shape(raw))
            worth = worth_of(laws[-1], text.score)
            leaders.add(row, worth)
            for rank, (_, token, value) in enumerate(leading([worth], self.prune) if clauses.lexical else ()):
                if rank < self.width or clauses.advances(text, token):
                    own[row, token] = value
            yield GiveWay()
        best = {(one.row, one.token): one.value for one in leaders.best()} | own
        found = list[Text]()
        for i, x in sorted(best, key=lambda pair: -best[pair]):
            found.append(pool.live[i].then(x, raws[i], laws[i], stop).ranked(best[i, x]))
            yield GiveWay()
        return found

    def _futures(
        self, grove: BeamCache, clauses: Clauses, texts: Sequence[Text], chance: Chance, stop: Stop
    ) -> Generator[Ask, Any, list[float]]:
        """h of every candidate, 0 for those that have said all."""
        open_ = [i for i, text in enumerate(texts) if text.reason is None and clauses.unsaid(text)]
        views = [clauses.view(texts[i]) for i in open_]
        seen = (yield from outlook(grove, views, self.ahead, chance, stop, texts)) if views else []
        futures = [0.0] * len(texts)
        for i, future in zip(open_, seen or [0.0] * len(open_), strict=True):
            futures[i] = future
        return futures


def _clauses(constraint: Constraint | None) -> Clauses:
    found = _lexical(constraint)
    if constraint is not None and found is None:
        raise BadRequest(
            "neurologic searches for keywords, but the request's constraint has none at its top: give keywords(…), "
            "alone or joined to others with &, or use beam"
        )
    return Clauses(found)


def _lexical(constraint: Constraint | None) -> Lexical | None:
    """The keywords among what is demanded, None if there are none."""
    if isinstance(constraint, And):
        return _lexical(constraint.first) or _lexical(constraint.second)
    return constraint if isinstance(constraint, Lexical) else None
