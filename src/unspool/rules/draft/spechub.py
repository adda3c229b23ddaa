"""Multi-draft trees whose best coupling is known: the likeliest tokens are always there, and one more is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.chance import At, Chance
from ...core.claim import LAW, claims
from ...core.law import Drawn, Law, chosen
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT
from .levels import level_by_level, refuse_widths
from .siblings import is_greedy, likeliest_of


@claims(
    LAW,
    name="spechub",
    trials=lambda rule: [Speculate(rule((2,)), rejection, budget=64), Speculate(rule((3, 2)), rejection, budget=4)],
    paper="2411.05289",
    systems=("SpecHub", "Optimal multi-draft: top K−1 and one drawn (Hu et al.)"),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class SpecHub(Memoryless):
    """At level i hang `widths[i]` tokens below every node: the likeliest but one of them, and one drawn from the rest.

    S are the w − 1 most probable tokens of Q, x ~ q = Q without S. Tokens of S are there whatever is drawn, so any
    mass of P on them can be accepted, and at most min(P, q) elsewhere: no exact rule accepts more of such siblings
    than P(S) + Σ min(P, q), and `rejection` does if it asks x first, as it stands first here. With two siblings this
    is SpecHub, whose hub is the likeliest token (its joint law of two drafts has the same two in it); with more it is
    the greedy multi-draft of Hu et al. (2502.18779). The optimum for independent drafts has no such simple rule: `kseq`
    is within 1 − 1/e of it. At temperature 0 all siblings are the likeliest tokens.

    Claim: LAW under rejection. Cost: one forward of the draft model per level.
    """

    widths: tuple[int, ...] = (3, 2, 1)

    def __post_init__(self) -> None:
        refuse_widths("spechub", self.widths)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        return level_by_level(self.widths, hub, prefix, budget, chance)


def hub(prefix: Prefix, raw: Law, count: int, chance: Chance, at: At) -> list[Drawn]:
    """One token drawn from all but the likeliest `count` − 1, then those; chosen ones alone where nothing is left."""
    law = possible(prefix, raw)
    if law is None or count < 1:
        return []
    if is_greedy(law):
        return [chosen(x) for x in likeliest_of(prefix, raw, count)]
    best = [x for x in law.top(min(count - 1, law.size)) if law[x] > 0] if count > 1 else []
    rest = law
    for x in best:
        rest = rest.without(x)
    drawn = [] if rest.is_empty() else [rest.draw(chance, at)]
    return [*drawn, *map(chosen, best)]
