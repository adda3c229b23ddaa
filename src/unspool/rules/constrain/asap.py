"""ASAp: local masking that learns, from text to text, what it leads into."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...core.claim import HEURISTIC, claims
from ...core.law import Law
from .futures import FutureNode
from .trying import Trying, fresh


@claims(HEURISTIC, trials=lambda rule: [fresh(rule)], paper="2405.21047", systems=("ASAp (grammar-aligned decoding)",))
@dataclass(frozen=True)
class Asap(Trying):
    """Draw x ∝ p(x|u)·θ(ux) among what the constraint allows, θ the share of futures not yet seen to break it.

    θ begins at 1, where this is local masking, and only falls: after each text it is summed up anew along its path. A
    text that comes to a dead end is given up for another. p is the law after all other warps, truncations too; at
    temperature 0 the text is plain decoding's.

    Claim: HEURISTIC. The law of the k-th text tends to p(text | constraint met) as k grows; the first has the bias of
    local masking. The gap printed is that of the first text; the tests enumerate how it falls.
    Cost: one forward and one mask per token; a try that fails is lost.
    """

    def shaped(self, law: Law, mask: Tensor, node: FutureNode | None) -> Law:
        return (node or FutureNode(1.0)).weigh(law, mask)
