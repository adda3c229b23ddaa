"""A*-decoding: of all beginnings that were seen, always go on with the one that has cost least and promises most."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...core.asks import Decoding
from ...core.chance import Chance
from ...core.claim import HEURISTIC, Branching, Watchable, claims
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ..decode.judge import Chatting
from .beam_cache import BeamCache
from .mark import LikelihoodMark, Mark, fit_mark
from .rollout import Border, drawing, rolled
from .search_text import Text, told


@claims(
    HEURISTIC,
    trials=lambda rule: [rule(2, border=Border(("b",), 1), rows=4)],
    paper="2505.13672",
    systems=("A*-decoding",),
    shaped=False,
)
@dataclass(frozen=True)
class AStar(Branching, Watchable):
    """Take the beginning with the least g + h from one frontier and draw `kids` next steps, until it is a whole text.

    With r the mark of a step, from 0 to 1: h = 1 − r, and g = Σ max(0, h(s′) − h(s)) over its steps, what h has risen
    by: a way that only gets better costs nothing, and a long one no more than a short one. Of equals the oldest goes
    first, equal steps merge. Marks are any process score: `Told(function)`, `JudgeMark()`, or how likely the step is.

    Claim: HEURISTIC: nothing makes h a lower bound. One kid is ancestral sampling.
    Cost: at most `rows` rows in all, then the whole text with the least g + h, or the beginning if there is none.
    """

    RANKS = True

    kids: int = 3
    mark: Mark = LikelihoodMark()  # noqa: RUF009  (frozen)
    border: Border = Border()  # noqa: RUF009
    rows: int = 4000

    def __post_init__(self) -> None:
        expect(whole(self.kids, 1), "astar:kids", self.kids, "a whole number of steps from 1 on")
        BeamCache(self.rows)

    @property
    def texts(self) -> int:
        return 4 * self.kids

    def fit(self, vocabulary: Chatting) -> AStar:
        return replace(self, mark=fit_mark(self.mark, vocabulary))

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        grove, border = BeamCache(self.rows), self.border.stop(stop)
        frontier = [_Open(1.0, 0, 0.0, 1.0, Text.begin(text, warp, stop))]
        came, shown = 0, list[Text]()
        try:
            while (best := min(frontier)).text.reason is None and grove.affords([best.text]):
                frontier.remove(best)
                # a beginning is gone on with once, and its number tells it from others of the same length
                texts, follow = [best.text] * self.kids, drawing(chance, best.came)
                held = [one.text for one in frontier]
                shown.clear()
                found = yield from rolled(grove, best.text, texts, border, stop, follow, 1, held, shown.extend)
                found = list({rollout.text.tokens: rollout for rollout in found}.values())
                marks = yield from self.mark(grove, found)
                for rollout, mark in zip(found, marks, strict=True):
                    came += 1
                    left = 1 - mark
                    cost = best.cost + max(0.0, left - best.left)
                    frontier.append(_Open(cost + left, came, cost, left, rollout.text))
        finally:
            ends = [one for one in frontier if one.text.reason] or frontier
            self.watch([*(one.text.ranked(-one.promise) for one in sorted(ends)), *shown])
        return (yield from told([min(ends).text], grove.forwards))


@dataclass(frozen=True, order=True)
class _Open:
    """A beginning in the frontier: its g + h, when it came, its g and its h."""

    promise: float
    came: int
    cost: float
    left: float
    text: Text = field(compare=False)
