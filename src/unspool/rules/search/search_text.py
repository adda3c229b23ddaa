"""A text of a search: what was written after the prompt, how likely it is, and whether it has ended.

A temperature of 0 does not hide the second best from a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from ...core.asks import Ask, Done, Emit
from ...core.errors import EmptyLaw
from ...core.law import Law
from ...core.reported_law import both_reported
from ...core.stop import Stop, Tail
from ...core.warp.warp import Both, Prefix, Same, Temperature, Warp

ROWS = "rows"  # the reason of a text that was still unfinished when the budget was spent


class Backpointer(NamedTuple):
    """How a token came about: its log p after all warps, the prefix it followed, and the token before.

    `raw` and `shaped` are the law that it was chosen from, before and after warps, as far as anybody is told of them:
    whole laws of all tokens of all texts would fill the memory. None if nobody is; a whole law is shaped anew.
    """

    logp: float
    prefix: Prefix
    back: Backpointer | None
    raw: Law | None = None
    shaped: Law | None = None

    def laws(self) -> tuple[Law, Law] | None:
        """The law before and after all warps; None if nobody is told."""
        if self.raw is None:
            return None
        return self.raw, self.prefix.shape(self.raw) if self.shaped is None else self.shaped


@dataclass(frozen=True, eq=False)
class Text:
    """One of the texts that a search compares.

    `logp` is the sum of its tokens' log-probabilities after all warps, `score` what the search ranks it by, once there
    is something to rank.
    """

    prefix: Prefix
    tail: Tail
    tokens: tuple[int, ...] = ()
    logp: float = 0.0
    score: float = -math.inf
    reason: str | None = None
    trim: int = 0
    last: Backpointer | None = None

    @staticmethod
    def begin(text: tuple[int, ...], warp: Warp, stop: Stop) -> Text:
        """Nothing written yet."""
        tail = stop.start()
        return Text(Prefix.of(text, warp, stop.left(tail)), tail)

    def then(self, token: int, raw: Law, law: Law, stop: Stop) -> Text:
        """This text with one more token, chosen from `law`, which the model gave as `raw`."""
        kept = (raw, None) if stop.told == math.inf else both_reported(raw, law, token, int(stop.told))
        return self.going(token, Backpointer(law.logprob(token), self.prefix, self.last, *kept), stop)

    def going(self, token: int, link: Backpointer, stop: Stop) -> Text:
        """This text with one more token, which came about like this."""
        _, reason, tail, trim = stop.cut(self.tail, (token,))
        logp, link = self.logp + link.logp, link._replace(back=self.last)
        return Text(self.prefix.then((token,)), tail, (*self.tokens, token), logp, -math.inf, reason, trim, link)

    def ranked(self, score: float) -> Text:
        """This text with a score."""
        return replace(self, score=score)

    def links(self, since: int = 0) -> list[Backpointer]:
        """How its tokens came about, those from number `since` on."""
        links, link = list[Backpointer](), self.last
        while link is not None and len(links) < len(self.tokens) - since:
            links.append(link)
            link = link.back
        return links[::-1]

    def told(self, since: int = 0) -> list[tuple[Law, Law]]:
        """The laws that its tokens from number `since` on were chosen from, before and after warps, if anybody asks."""
        return [found for link in self.links(since) if (found := link.laws()) is not None]


Watch: TypeAlias = Callable[[Sequence[Text]], None]
"""Is told texts of a search, best first."""


def said(text: Text, since: int, rounds: int = 1) -> Emit:
    """The tokens of a text from number `since` on, with their laws, for whoever listens."""
    laws = text.told(since)
    return Emit(text.tokens[since:], [raw for raw, _ in laws], [shaped for _, shaped in laws], rounds=rounds)


def told(found: Sequence[Text], forwards: int) -> Generator[Ask, Any, Done]:
    """Hand out the first of these texts, with its laws."""
    if not found:
        raise EmptyLaw(
            "the search has no text left: every one of them came to a place where no token may follow. Loosen the "
            "warps or constraints, or search more widely."
        )
    best = found[0]
    yield said(best, 0, forwards)
    return Done(best.tokens, best.reason or ROWS, best.trim)


def without_greedy(warp: Warp) -> Warp:
    """The warps without a temperature of 0 at their end.

    That one leaves a single token at every place, and so nothing to search: a search that draws nothing is as
    deterministic without it.
    """
    if isinstance(warp, Temperature) and warp.t == 0:
        return Same()
    if not isinstance(warp, Both):
        return warp
    second = without_greedy(warp.second)
    if second is warp.second:
        return warp
    return without_greedy(warp.first) if isinstance(second, Same) else Both(warp.first, second)
