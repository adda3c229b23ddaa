"""Greedy multi-path block verification: choose the most promising of several paths, then weigh it as a block."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.asks import Verdict
from ...core.chance import Chance
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.law import Law
from ...core.tree import ROOT
from ...core.warp.warp import Scored
from .block import longest
from .kseq import alike
from .verify_trials import bunched


@claims(LAW, trials=bunched, paper="2602.16961", systems=("GBV (reconstructed ranking)",))
def multipath(scored: Scored, chance: Chance) -> Verdict:
    """Of K independent paths take the one whose tokens have the largest P/Q, first token first; then `block` on it.

    The chosen path has a law of its own. With A the mass of paths ranked before the prefix x^i and M its own mass,
    Pr(chosen begins with x^i) = (1 − A)^K − (1 − A − M)^K, and Q^Γ(·|x^{i−1}) is the ratio of two such numbers: on-path
    laws are all it needs. Block verification with Q^Γ for Q is exact for any choice of path. That the local ranking
    is by P/Q is this library's reconstruction: the paper's own was not found.

    Where Q is close to P more paths can lose: at P = Q one path is accepted whole, the best of several is not. So only
    the first k of the K paths are looked at, for the k that accepts a first token most often, Σ min(P, Q^Γ): that is
    decided by the laws at the root, before any token is seen, and leaves the rule exact.

    Claim: LAW. Cost: one sort of the vocabulary per level, then block verification.
    """
    tree, above = scored.tree, ROOT
    front = alike(tree, tree.kids(ROOT))
    if len(front) > 1 and not scored.ends(ROOT):
        front = front[: helpful(scored.law(ROOT), tree.drawn[front[0]].law, len(front))]
    count, before, mass = len(front), 0.0, 1.0
    path: list[int] = []
    laws: list[Law] = []
    while front and not scored.ends(above):
        p, q = scored.law(above), tree.drawn[front[0]].law
        place, ahead = ranking(p, q)
        x = min((tree.drawn[node].token for node in front), key=lambda x: int(place[x]) if x >= 0 else len(place))
        if x < 0:  # a mask, which some drafters hang below tokens and no law knows
            break
        front = [node for node in front if tree.drawn[node].token == x]
        above = front[0]
        path.append(above)
        laws.append(chosen(q.spread(p).double(), ahead, count, before, mass))
        if p[x] == 0:  # nothing from here on can stand, and a warp may have no law for it
            break
        before, mass = before + mass * float(ahead[x]), mass * q[x]
        below = [tree.kids(node)[0] for node in front if tree.kids(node)]
        if below and len(alike(tree, below)) < len(front):
            raise BadRequest(
                "multipath was given paths that say the same and then have different lengths or laws; "
                "expected independent paths, as the drafter `specinfer` draws them"
            )
        front = below
    return longest(scored, path, laws, chance)


def helpful(p: Law, q: Law, count: int) -> int:
    """How many of so many paths to look at: the number with the most accepted first tokens; of several, the largest."""
    draft, (_, ahead) = q.spread(p).double(), ranking(p, q)
    rates = [float(torch.minimum(p.p.double(), chosen(draft, ahead, k, 0.0, 1.0).p).sum()) for k in range(1, count + 1)]
    return max(range(1, count + 1), key=lambda k: (rates[k - 1] > max(rates) - 1e-12, k))


def ranking(p: Law, q: Law) -> tuple[Tensor, Tensor]:
    """The place of each token by falling P/Q, ties by id, and the mass that Q gives to the tokens before it."""
    draft = q.spread(p).double()
    ratio = torch.where(draft > 0, p.p.double() / draft, -1.0)  # a token that is never drafted comes last
    order = ratio.argsort(descending=True, stable=True)
    place, ahead = torch.empty_like(order), torch.zeros_like(draft)
    place[order] = torch.arange(len(order), device=order.device)
    ahead[order[1:]] = draft[order].cumsum(0)[:-1]
    return place, ahead


def chosen(draft: Tensor, ahead: Tensor, count: int, before: float, mass: float) -> Law:
    """Q^Γ: the law of the next token of the best of `count` paths, after a prefix of this mass and mass before it."""
    room = (1 - before - mass * ahead).clamp_min(0)
    share = torch.where(room > 0, mass * draft / room, 0.0).clamp_max(1)
    # room^K − (room − mass·Q)^K, written so that small shares of a large vocabulary do not cancel
    return Law((-(room**count) * torch.expm1(count * torch.log1p(-share))).log())
