"""Looking ahead: how a beginning may go on for a few tokens, and how likely a phrase is to come up on the way."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...core.asks import Ask, GiveWay
from ...core.chance import At, Chance, Role
from ...core.law import NEVER, Law
from ...core.option import expect, whole
from ...core.stop import Stop
from .beam_cache import BeamCache
from .candidates import leading, worth_of
from .search_text import Text

Chain: TypeAlias = tuple[int, ...]
"""The tokens of a phrase, or of what is missing of it."""


class Ahead(Protocol):
    """A way to go on."""

    @property
    def steps(self) -> int:
        """How many tokens it looks at; with 1, what may come next and nothing more."""

    @property
    def width(self) -> int:
        """How many ways it goes at the same time."""

    def on(self, ways: Sequence[Text], laws: Sequence[Law], chance: Chance, at: At) -> list[tuple[int, int]]:
        """Which tokens follow which ways of one beginning; its k-th random number is at at.k + k."""


@dataclass(frozen=True)
class Greedy:
    """Write the best token."""

    steps: int = 5

    def __post_init__(self) -> None:
        _refuse(self.steps, 1)

    @property
    def width(self) -> int:
        return 1

    def on(self, ways: Sequence[Text], laws: Sequence[Law], chance: Chance, at: At) -> list[tuple[int, int]]:
        return [(i, law.best) for i, law in enumerate(laws)]


@dataclass(frozen=True)
class Beamed:
    """Keep the `width` likeliest ways."""

    steps: int = 5
    width: int = 4

    def __post_init__(self) -> None:
        _refuse(self.steps, self.width)

    def on(self, ways: Sequence[Text], laws: Sequence[Law], chance: Chance, at: At) -> list[tuple[int, int]]:
        best = leading([worth_of(law, way.logp) for way, law in zip(ways, laws, strict=True)], self.width)
        return [(one.row, one.token) for one in best]


@dataclass(frozen=True)
class Sampled:
    """Draw `width` ways, each token among the `top` best."""

    steps: int = 5
    width: int = 5
    top: int = 2

    def __post_init__(self) -> None:
        _refuse(self.steps, self.width)
        expect(whole(self.top, 1), "top", self.top, "a whole number of tokens from 1 on")

    def on(self, ways: Sequence[Text], laws: Sequence[Law], chance: Chance, at: At) -> list[tuple[int, int]]:
        rows = [0] * self.width if len(ways) == 1 else range(len(ways))
        drawn = []
        for k, row in enumerate(rows):
            best = leading([worth_of(laws[row], 0.0)], self.top)
            few = Law.of([math.exp(one.value) for one in best])
            drawn.append((row, best[few.draw(chance, at._replace(k=at.k + k)).token].token))
        return drawn


class WatchedChains(NamedTuple):
    """A beginning, with the chains to look out for: `now` only right behind it, `later` anywhere."""

    text: Text
    now: Sequence[Chain]
    later: Sequence[Chain]


def outlook(
    grove: BeamCache,
    views: Sequence[WatchedChains],
    ahead: Ahead,
    chance: Chance,
    stop: Stop,
    held: Sequence[Text] = (),
) -> Generator[Ask, Any, list[float] | None]:
    """For each beginning max over chains z and places t of mean_j log p(z_j | what was written up to t, z up to j).

    None if the budget has no room for that. These and what is held can be gone on with later.
    """
    best = [NEVER] * len(views)
    fronts = [[view.text] for view in views]
    for step in range(ahead.steps):
        live = [(i, way) for i, ways in enumerate(fronts) for way in ways]
        chains = [[*views[i].later, *(() if step else views[i].now)] for i, _ in live]
        texts = [way for _, way in live]
        further = max((sum(map(len, own)) for own in chains), default=0)
        if not grove.affords(texts, further):
            return best if step else None
        found = yield from grove.along(texts, chains, [*(view.text for view in views), *held])
        for (i, way), own, laws in zip(live, chains, found, strict=True):
            for chain, raws in zip(own, laws, strict=True):
                best[i] = max(best[i], _mean(way, chain, raws))
                yield GiveWay()
        if step + 1 == ahead.steps:
            break
        raw = [laws[0][0] for laws in found]
        for i, view in enumerate(views):
            yield GiveWay()
            own_ways = [j for j, (owner, _) in enumerate(live) if owner == i]
            ways = [texts[j] for j in own_ways]
            shaped = [texts[j].prefix.shape(raw[j]) for j in own_ways]
            at = At(len(view.text.prefix) + step, Role.DRAFT, i * ahead.width, len(view.text.prefix))
            # a beginning that nothing may follow has no way on
            going = [j for j, law in enumerate(shaped) if not law.is_empty()]
            ways, shaped, own_ways = [ways[j] for j in going], [shaped[j] for j in going], [own_ways[j] for j in going]
            pairs = ahead.on(ways, shaped, chance, at) if ways else []
            grown = [ways[j].then(token, raw[own_ways[j]], shaped[j], stop) for j, token in pairs]
            fronts[i] = list({way.tokens: way for way in grown if way.reason is None}.values())
    return best


def _mean(text: Text, chain: Chain, raws: Sequence[Law]) -> float:
    """The mean log p of a chain's tokens behind a text."""
    prefix, total = text.prefix, 0.0
    for token, raw in zip(chain, raws, strict=True):
        law = prefix.shape(raw)
        total += NEVER if law.is_empty() else law.logprob(token)
        prefix = prefix.then((token,))
    return total / len(chain)


def _refuse(steps: int, width: int) -> None:
    expect(whole(steps, 0), "steps", steps, "a whole number of tokens, 0 for no look ahead")
    expect(whole(width, 1), "width", width, "a whole number of texts from 1 on")
