"""Block verification: weigh a drafted path as a whole, so that a likely ending can save an unlikely beginning."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import LAW, claims
from ...core.law import Law
from ...core.tree import ROOT
from ...core.warp.warp import Scored
from .verify_trials import chained


@claims(LAW, trials=chained, paper="2403.10444", systems=("Block verification", "vLLM (block)"))
def block(scored: Scored, chance: Chance) -> Verdict:
    """Accept as many tokens of the first path as ever an exact rule can, looking from its end to its beginning.

    p_0 = 1, p_i = min(1, p_{i−1} · P(x_i)/Q(x_i)); after x_i the text stops with probability h_i = S_i/(S_i + 1 − p_i),
    S_i = Σ[p_i·P − Q]₊, and after the whole path with h_L = p_L. The largest i that stands wins, and the next token is
    drawn from norm[p_i·P − Q]₊, or from P after the whole path. E_Q[p_{i+1}] = p_i − S_i, so Pr(τ ≥ i) = p_i: no
    exact rule can do better on one drawn path, and for copied tokens (point masses) it is the same as rejection.

    In a tree it reads the path of eldest siblings and no other: `traversal` and `multipath` read more.

    Claim: LAW. Cost: one residual and one coin per drafted token, one draw.
    """
    tree, node, path = scored.tree, ROOT, []
    while kids := tree.kids(node):
        node = kids[0]
        path.append(node)
    return longest(scored, path, [tree.drawn[node].law for node in path], chance)


def longest(scored: Scored, path: Sequence[int], laws: Sequence[Law], chance: Chance) -> Verdict:
    """How far a path stands, if its i-th token was drawn from the i-th of these laws."""
    stops, weights, end = [ROOT, *path], [1.0], len(path)
    for i, (node, q) in enumerate(zip(path, laws, strict=True)):
        if scored.ends(stops[i]):  # whatever was drafted below, the path is over here
            end = i
            break
        x = scored.tree.drawn[node].token
        weight = min(1.0, weights[-1] * scored.law(stops[i])[x] / q[x]) if q[x] > 0 else 0.0
        if weight == 0:  # nothing from here on can stand, and a warp may have no law for it
            break
        weights.append(weight)

    i = len(weights) - 1
    rest, stands = (None, weights[i]) if i == end else residual(scored.law(stops[i]), laws[i], weights[i])
    while not chance.coin(stands, scored.at(Role.ACCEPT, stops[i])):  # at the root p = 1, which stands
        i -= 1
        rest, stands = residual(scored.law(stops[i]), laws[i], weights[i])
    law = scored.law(stops[i]) if rest is None else rest
    return Verdict(stops[i], law.draw(chance, scored.at(Role.RESIDUAL, stops[i])).token)


def residual(p: Law, q: Law, weight: float) -> tuple[Law, float]:
    """norm[weight·p − q]₊, and the probability S/(S + 1 − weight) that the draft ends here, S = Σ[weight·p − q]₊.

    `weight` is the probability that this prefix may be emitted at all. At weight 1 something must be, so the second
    is 1; where nothing is left (p = q up to rounding), the law is p itself.
    """
    rest = (weight * p.p - q.spread(p)).clamp_min(0)
    left = float(rest.sum(dtype=torch.float64))
    short = left + (1 - weight)  # in this order, so that at weight 1 it is what is left, to the last bit
    return (Law(rest.log()) if left > 0 else p), (left / short if short > 0 else 1.0)
