"""A second model's most probable paths, as one tree of chosen tokens."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Score, Scores
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.cost import FREE, Cost
from ...core.errors import BadRequest
from ...core.law import Law, chosen
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..grow.best_first import Twig, best_first, planted
from .chain import DRAFT


@claims(
    SEED,
    trials=lambda _: [Speculate(Likeliest(1, 2), budget=2), Speculate(Likeliest(2, 2), budget=3)],
    paper="2406.17276",
    systems=("OPT-Tree", "EAGLE-2, EAGLE-3, EAGLE-3.1 (dynamic tree)", "DDTree, JetSpec (trees over block drafters)"),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class Likeliest(Memoryless):
    """The nodes with the largest path probabilities under a draft model, `width` scored per level.

    Level by level the `width` most probable nodes get their `width` most probable children; then one heap takes the
    budget's worth out of everything that was offered. OPT-Tree (2406.17276) is this with width = budget, and stops
    when a level adds at most `gain` expected tokens; EAGLE-2 (2406.16858) is this with width = its top k and gain = 0.
    Over a block drafter, which tells all its levels in one forward, it is DDTree (2604.12989).
    A level pays if it adds more than its draft forward takes at the rate so far, so gain = draft time × tokens per
    time is the right one. Where warps leave one token (greedy decoding), the draft's own law says how sure it is.

    Claim: SEED under sample matching. Cost: one forward of the draft model per level.
    """

    width: int = 4
    depth: int = 4
    gain: float = 0.0
    cost: Cost = FREE

    def __post_init__(self) -> None:
        if self.width < 1 or self.depth < 1 or self.gain < 0:
            raise BadRequest(
                f"likeliest:width={self.width},depth={self.depth},gain={self.gain} cannot be used; "
                "expected a width and a depth from 1 on and a gain from 0 on"
            )

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        known: dict[tuple[int, ...], list[tuple[int, float]]] = {}
        tree, level, best = NOTHING, [(ROOT, 1.0, prefix)], list[Twig]()
        for depth in range(prefix.ahead(min(self.depth, budget))):
            scores: Scores = yield Score(tree, by=DRAFT)
            offered = []
            for node, reach, here in level:
                path = here.text[len(prefix) :]
                law = possible(here, scores.law(node))
                known[path] = [] if law is None else _kids(law, scores.law(node), self.width)
                offered += [(reach * p, token, node, here) for token, p in known[path]]
            before, best = best, best_first(lambda path: known.get(path, []), budget, self.cost)
            if depth + 1 == self.depth or sum(t.p for t in best) - sum(t.p for t in before) <= self.gain:
                break
            level = []
            for reach, token, node, here in sorted(offered, key=lambda o: -o[0])[: self.width]:
                tree, kid = tree.grow(chosen(token), node)
                level.append((kid, reach, here.then((token,))))
        return planted(best)


def _kids(law: Law, raw: Law, width: int) -> list[tuple[int, float]]:
    """The most probable tokens with their probabilities."""
    kids = _top(law, width)
    if len(kids) > 1 or kids[0][1] < 1:
        return kids
    (_, sure), *_ = others = _top(raw, width)
    return [(law.best, sure), *((x, p) for x, p in others if x != law.best)][:width]


def _top(law: Law, width: int) -> list[tuple[int, float]]:
    p, tokens = law.p.topk(min(width, law.size))
    return [(x, mass) for x, mass in zip(tokens.tolist(), p.tolist(), strict=True) if mass > 0]
