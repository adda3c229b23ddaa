"""K-SEQ: one common test for several independent drafts, as strict as it must be and no stricter."""

from __future__ import annotations

from itertools import takewhile

import torch
from torch import Tensor

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import LAW, claims
from ...core.law import Law
from ...core.tree import ROOT, Tree
from ...core.verifier import token_by_token
from ...core.warp.warp import Scored
from .verify_trials import bunched

HALVINGS = 12  # of [1, K] for ρ; any ρ from the root on is exact, a rougher one accepts less: by K/4,096 at most


@claims(LAW, trials=bunched, paper="2310.15141", systems=("SpecTr (K-SEQ)",))
@token_by_token
def kseq(scored: Scored, chance: Chance) -> Verdict:
    """Accept the first of K independent x ~ Q that passes min(1, P(x)/(ρ·Q(x))), with the least ρ that leaves P exact.

    β = Σ min(Q, P/ρ), a = 1 − (1 − β)^K; exact if a ≤ ρ·β, and ρ is the root of that in [1, K]. If none passes, the
    next token is drawn from norm[P − min(Q, P/ρ)·a/β]₊. Paths that begin with the accepted token all stay in play, and
    ρ is found anew for their number. a ≥ (1 − (1 − 1/K)^K) times the optimal transport's acceptance.

    Siblings count as independent draws if they carry one law, the very object; others are not looked at.

    Claim: LAW. Cost: per accepted token a bisection over the vocabulary and a coin per path in play; one draw.
    """
    tree, front = scored.tree, [ROOT]
    while True:
        node, law = front[0], scored.law(front[0])
        drafts = alike(tree, [kid for above in front for kid in tree.kids(above)])
        if not drafts:
            break
        q = tree.drawn[drafts[0]].law
        rho, rest = common_test(law, q, len(drafts))
        for k, kid in enumerate(drafts):
            x = tree.drawn[kid].token
            if chance.coin(min(1.0, law[x] / (rho * q[x])), scored.at(Role.ACCEPT, node, k)):
                front = [other for other in drafts if tree.drawn[other].token == x]
                break
        else:
            law = rest
            break
    return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)


def alike(tree: Tree, nodes: list[int]) -> list[int]:
    """The first of these nodes and those right after it that were drawn from the same law."""
    return list(takewhile(lambda node: tree.drawn[node].law is tree.drawn[nodes[0]].law, nodes))


def common_test(p: Law, q: Law, count: int) -> tuple[float, Law]:
    """ρ for `count` drafts, and the law of the next token if none of them passes."""
    target, draft = p.p.double(), q.spread(p).double()

    def passing(rho: float) -> tuple[Tensor, float, float]:
        common = torch.minimum(draft, target / rho)
        beta = min(1.0, float(common.sum()))
        return common, beta, 1 - (1 - beta) ** count

    low, rho = 1.0, float(count)
    if _fits(1.0, *passing(1.0)[1:]):
        rho = 1.0
    for _ in range(HALVINGS if rho > 1 else 0):
        middle = (low + rho) / 2
        low, rho = (low, middle) if _fits(middle, *passing(middle)[1:]) else (middle, rho)
    common, beta, accepted = passing(rho)
    rest = (target - common * (accepted / beta if beta > 0 else 0.0)).clamp_min(0)
    return rho, Law(rest.log()) if float(rest.amax()) > 0 else p


def _fits(rho: float, beta: float, accepted: float) -> bool:
    return accepted <= rho * beta
