"""Branch where the model is in doubt, see what comes of each way, and go on with the best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from ...core.asks import Decoding, Done, GiveWay
from ...core.chance import At, Chance, Role
from ...core.claim import Watchable
from ...core.law import Law
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ..decode.judge import Chatting
from .beam_cache import BeamCache
from .mark import LikelihoodMark, Mark, fit_mark
from .rollout import Border, Follow, rolled
from .search_text import ROWS, Text, said


class Fork(Protocol):
    """Says where to branch, and how a branch is written on."""

    def view(self, warp: Warp) -> Warp:
        """The warps under which it looks at laws."""

    def ways(self, law: Law, chance: Chance, position: int) -> list[int]:
        """The tokens to go on with; a single one is no branch."""

    def follow(self, law: Law, chance: Chance, at: At) -> int:
        """The next token of a branch."""


@dataclass(frozen=True)
class Branch(Watchable):
    """Write token by token; where `fork` names several, write each on to the `border` and keep the best by `mark`.

    All of the best branch is kept, or its first `commit` tokens. Of equal marks the first wins. `texts` says how many
    branches there are at most. `watch` is told the text, or the branches that were under way if it is cancelled.

    Cost: one forward per token, of as many rows as there are branches; at most `rows` in all, then what stands.
    """

    fork: Fork
    mark: Mark = LikelihoodMark()  # noqa: RUF009  (frozen)
    border: Border = Border()  # noqa: RUF009
    commit: int = 0
    rows: int = 0
    texts: int = 16

    def fit(self, vocabulary: Chatting) -> Branch:
        return replace(self, mark=fit_mark(self.mark, vocabulary))

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        grove, here = BeamCache(self.rows), Text.begin(text, self.fork.view(warp), stop)
        border = self.border.stop(stop)
        shown: list[Text] = []
        try:
            while here.reason is None and grove.affords([here]):
                before = here
                (raw,) = yield from grove.score([here])
                law, position = here.prefix.shape(raw), len(here.prefix)
                ways = list[Text]()
                for token in self.fork.ways(law, chance, position):
                    ways.append(here.then(token, raw, law, stop))
                    yield GiveWay()
                here = ways[0]
                if len(ways) > 1:
                    rollouts = yield from rolled(
                        grove, before, ways, border, stop, self._follow(chance, position), watch=shown.extend
                    )
                    marks = yield from self.mark(grove, rollouts)
                    best = marks.index(max(marks))
                    here = rollouts[best].text
                    if self.commit and len(rollouts[best].tokens) > self.commit:
                        here = _first(before, rollouts[best].text, self.commit, stop)
                yield said(here, len(before.tokens))
        finally:
            self.watch(shown or [here])
        return Done(here.tokens, here.reason or ROWS, here.trim)

    def _follow(self, chance: Chance, number: int) -> Follow:
        """How branches are written on from place `number`."""
        return lambda i, text, law: self.fork.follow(law, chance, At(len(text.prefix), Role.DRAFT, i, number))


def _first(start: Text, text: Text, count: int, stop: Stop) -> Text:
    """The first few of the tokens that a text has more than its start."""
    here = start
    size = len(start.tokens)
    for link, token in zip(text.links(size)[:count], text.tokens[size:], strict=False):
        here = here.going(token, link, stop)
    return here
