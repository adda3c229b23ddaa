"""Blended: a block that was filled at once, taken as far as a law between filling and reading would have written it."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import TARGET, Verdict
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.errors import BadRequest
from ...core.law import Law
from ...core.option import expect, real, whole
from ...core.race import Racing
from ...core.tree import ROOT
from ...core.warp.warp import Prefix, Scored
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate
from ..draft.denoised import drawn_block


@claims(
    HEURISTIC,
    trials=lambda _: [Speculate(RacedBlock(2, TARGET), Blended(), budget=2)],
    paper="2506.00413",
    systems=("APD (adaptive parallel decoding)",),
)
@dataclass(frozen=True)
class Blended:
    """Accept drafted x while argmin Eᵧ / B(y) = x, where B ∝ q^R · p^(1−R) and x itself won the race under q.

    q is the law that filled the hole, p the law of reading left to right up to it, R the `weight`, and E are the
    waiting times of the position, the same for both, so that like laws agree. The first token always stands. R = 1
    takes every block whole; with R = 0 it stands as far as p would have written it. Temperature is applied once.

    Claim: HEURISTIC. Cost: one look and one forward per round.
    """

    weight: float = 0.5

    def __post_init__(self) -> None:
        expect(real(self.weight, 0, 1), "blended:weight", self.weight, "a number from 0 (reading) to 1 (filling)")

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, path = scored.tree, list[int]()
        node = ROOT
        while kids := tree.kids(node):
            token, q = tree.drawn[kids[0]]
            law = self._between(scored.law(node), q)
            if path and law.draw(Racing(chance), scored.at(Role.PICK, node)).token != token:
                break
            node = kids[0]
            path.append(node)
        if not path:
            return Verdict(ROOT, scored.law(ROOT).draw(Racing(chance), scored.at(Role.PICK, ROOT)).token)
        return Verdict(tree.parent[node], tree.drawn[node].token)

    def _between(self, p: Law, q: Law) -> Law:
        """The blended law; the reader's own where the two have no token in common."""
        both = Law((q.spread(p) ** self.weight * p.spread(p) ** (1 - self.weight)).log())
        return p if both.is_empty() else both


@dataclass(frozen=True)
class RacedBlock(Draft):
    """Fill `depth` holes in one look, each by a race.

    With a `window` of W, a look computes the holes, what was written since the last one and W places before it; all
    else is seen as it was computed before. That counts for a model that keeps keys (LLaDA, Dream); one that reads its
    text from left to right computes nothing twice anyway.
    """

    depth: int
    by: str
    window: int = 0

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise BadRequest(f"blended:depth={self.depth} cannot be used; expected a depth from 1 on")
        expect(whole(self.window, 0), "blended:window", self.window, "a number of places, 0 for all")

    def begin(self, prefix: Prefix) -> Source:
        return _Blocks(self)


class _Blocks(Source):
    """The blocks of one request; `seen` is how long the text was when it was looked at last."""

    def __init__(self, block: RacedBlock) -> None:
        self.block, self.seen = block, 0

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        first, window = At(len(prefix), Role.PICK), self.block.window
        fresh = max(0, self.seen - window) if window else None
        depth = min(self.block.depth, budget)
        drawn = yield from drawn_block(prefix, depth, Racing(chance), first, self.block.by, fresh)
        self.seen = len(prefix) if len(drawn) else self.seen  # the holes of this look hold something else by the next
        return drawn
