"""A second model drafts a bunch: several paths, each drawn as if there were no other."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT
from .siblings import is_greedy, likeliest_of


@claims(
    LAW,
    trials=lambda _: [Speculate(SpecInfer(2, 1), rejection, budget=2), Speculate(SpecInfer(2, 2), rejection, budget=4)],
    paper="2305.09781",
    systems=("SpecInfer (multi-step speculative sampling)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class SpecInfer(Memoryless):
    """Draw `paths` independent texts of `depth` tokens from a draft model, under the request's own warps.

    Paths may coincide; duplicates stay, because removing them would change the law that a verifier is told. Paths that
    have said the same so far carry the same law, the very object, which is how a verifier knows that they are
    independent draws of one law. At temperature 0 they would all be one: then the paths begin with the draft's best
    tokens, each with another, and go on greedily.

    Claim: LAW under rejection. Cost: `depth` forwards of the draft model per round; duplicates are scored again.
    """

    paths: int = 3
    depth: int = 3

    def __post_init__(self) -> None:
        if min(self.paths, self.depth) < 1:
            raise BadRequest(
                f"specinfer:paths={self.paths},depth={self.depth} cannot be used; "
                "expected both from 1 on, as paths=3,depth=3"
            )

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        """The paths, level by level; a small budget makes fewer paths before shorter ones.

        A path is shorter than the others only where warps leave the draft model no token after what it has said.
        """
        tree, start = NOTHING, len(prefix)
        ends = dict.fromkeys(range(min(self.paths, budget)), ROOT)
        for i in range(prefix.ahead(min(self.depth, budget // max(1, len(ends))))):
            scores: Scores = yield Score(tree, by=DRAFT)
            said = {j: tree.tokens(tree.path(node)) for j, node in ends.items()}
            nodes = dict(zip(said.values(), ends.values(), strict=True))  # one for all that have said the same
            laws = {path: possible(prefix.then(path), scores.law(node)) for path, node in nodes.items()}
            for j, node in list(ends.items()):
                law = laws[said[j]]
                if law is None:  # this path ends; what it has said decides that, and no other path does
                    del ends[j]
                elif is_greedy(law):
                    best = likeliest_of(prefix.then(said[j]), scores.law(node), 1 if i else j + 1)
                    if len(best) <= (0 if i else j):
                        del ends[j]
                    else:
                        tree, ends[j] = tree.grow(chosen(best[-1]), node)
                else:
                    tree, ends[j] = tree.grow(law.draw(chance, At(start + i, Role.DRAFT, j, start)), node)
            if not ends:
                break
        return tree
