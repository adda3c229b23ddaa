"""Beam search: the few best beginnings, extended together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.asks import Ask, Decoding, GiveWay
from ...core.chance import Chance
from ...core.claim import HEURISTIC, Branching, Watchable, claims
from ...core.law import Law
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from .beam_cache import BeamCache
from .candidates import continuations
from .length_norm import LengthNorm, Patience, Power, SearchOutlook, likely
from .search_text import Text, Watch, told, without_greedy


@claims(HEURISTIC, trials=lambda rule: [rule(4), rule(2)], systems=("Beam search", "GNMT length penalty"))
@dataclass(frozen=True)
class Beam(Branching, Watchable):
    """Of all one-token continuations of `width` texts keep the `width` best by Σ log p; the best finished text wins.

    Finished texts are compared by Σ log p / length(tokens). A continuation that ends counts only if it is among the
    `width` best itself, so that the search does not fill up with short texts; places that finished texts leave go to
    the next best. Laws are those after all warps but a temperature of 0, so a `Constrained` warp makes this
    constrained beam search. `watch` is told all finished texts, best first; where these are fewer than `width`, the
    best of those that ended below the `width` best come behind them, so that whoever asks for several is not refused.

    Claim: HEURISTIC: what it finds is often likelier than the greedy text, and not always the likeliest. With one beam
    it is greedy decoding, which is enumerated in the tests; with a beam for every text (width ≥ Vᵀ), `sure` and
    Power(0) it is the most probable text of all. In between nothing is promised.
    Cost: one forward per token, of `width` rows; at most `rows` rows in all, then the best so far.
    """

    RANKS = True

    width: int = 4
    length: LengthNorm = Power(1.0)  # noqa: RUF009  (frozen)
    patience: Patience = likely
    rows: int = 0

    def __post_init__(self) -> None:
        expect(whole(self.width, 1), "beam:width", self.width, "a whole number of texts from 1 on")
        BeamCache(self.rows)

    @property
    def texts(self) -> int:
        return self.width

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        pool = BeamPool(self.width, self.length, self.patience)
        return beams([pool], 0.0, text, warp, stop, self.rows, self.watch)


def beams(
    pools: Sequence[BeamPool], apart: float, text: tuple[int, ...], warp: Warp, stop: Stop, rows: int, watch: Watch
) -> Decoding:
    """Beam search in several pools at once, each kept `apart` from what those before it have just written."""
    grove, begin = BeamCache(rows), Text.begin(text, without_greedy(warp), stop)
    for pool in pools:
        pool.live = [begin.ranked(0.0)]
    found: list[Text] = []
    try:
        while grove.affords(live := [text for pool in pools for text in pool.live]):
            raws = iter((yield from grove.score(live)))
            taken: Counter[int] = Counter()
            for pool in pools:
                fines = {token: apart * count for token, count in taken.items()}
                taken.update((yield from pool.advance([next(raws) for _ in pool.live], fines, stop)))
    finally:
        for texts in ([pool.found() for pool in pools], [pool.passed_over() for pool in pools]):
            found += sorted((text for each in texts for text in each), key=lambda text: -text.score)
        found[:] = _different(found)
        watch(found)
    return (yield from told(found, grove.forwards))


def _different(found: Sequence[Text]) -> list[Text]:
    """The first of all that say the same; a model may have several tokens that end a text."""
    said: dict[tuple[int, ...], Text] = {}
    for text in found:
        said.setdefault(text.tokens[:-1] if text.reason == "token" else text.tokens, text)
    return list(said.values())


@dataclass(eq=False)
class BeamPool:
    """The beams that compete with each other: `live` ones, scored by Σ log p less what they were fined, and `ended`.

    `passed` are the best that ended below the `width` best continuations.
    """

    width: int
    length: LengthNorm
    patience: Patience
    live: list[Text] = field(default_factory=list)
    ended: list[Text] = field(default_factory=list)
    passed: list[Text] = field(default_factory=list)

    def advance(self, raws: Sequence[Law], fines: dict[int, float], stop: Stop) -> Generator[Ask, Any, list[int]]:
        """One token more for all; those that were written."""
        laws = list[Law]()
        for text, raw in zip(self.live, raws, strict=True):
            laws.append(text.prefix.shape(raw))
            yield GiveWay()
        return (yield from self.go_on(raws, laws, fines, stop)) if laws else []

    def go_on(
        self, raws: Sequence[Law], laws: Sequence[Law], fines: dict[int, float], stop: Stop
    ) -> Generator[Ask, Any, list[int]]:
        """The same, with the laws after all warps too."""
        best = yield from continuations(laws, [text.score for text in self.live], self.room(stop), fines)
        texts = list[Text]()
        for i, token, value in best:
            texts.append(self.live[i].then(token, raws[i], laws[i], stop).ranked(value))
            yield GiveWay()
        return self.take(texts, stop)

    def room(self, stop: Stop) -> int:
        """So many continuations that enough go on even if all ends are among them."""
        return self.width * (1 + max(1, len(stop.tokens)))

    def take(self, texts: Sequence[Text], stop: Stop) -> list[int]:
        """Go on with the first of these, best first; the tokens that were written."""
        live, written = list[Text](), list[int]()
        for rank, text in enumerate(texts):
            if text.reason is None and len(live) < self.width:
                live.append(text)
            elif text.reason is not None and rank < self.width:
                self.ended.append(text.ranked(self._score(text)))
            else:
                self.passed += [text.ranked(self._score(text))] if text.reason is not None else []
                continue
            written.append(text.tokens[-1])
        self.ended, self.passed = self._best(self.ended), self._best(self.passed)
        self.live = live if self._goes_on(live, stop) else []
        return written

    def found(self) -> list[Text]:
        """The finished texts; if there are none, those that were being written, once they have a token."""
        return self.ended or [text.ranked(self._score(text)) for text in self.live if text.tokens]

    def passed_over(self) -> list[Text]:
        """As many of those that ended below the best continuations as finished texts are missing."""
        return _different([*self.ended, *self.passed])[len(self.ended) : self.width] if self.ended else []

    def _best(self, texts: list[Text]) -> list[Text]:
        return _different(sorted(texts, key=lambda text: -text.score))[: self.width]

    def _score(self, text: Text) -> float:
        return text.logp / self.length(len(text.tokens))

    def _goes_on(self, live: list[Text], stop: Stop) -> bool:
        if not live or len(self.ended) < self.width:
            return bool(live)
        best = max(text.logp for text in live)
        most = float("inf") if stop.most is None else stop.most
        return self.patience(SearchOutlook(best, len(live[0].tokens), most, self.ended[-1].score, self.length))
