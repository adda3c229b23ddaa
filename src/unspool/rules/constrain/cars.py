"""CARS: rejection sampling of whole texts that never tries the same mistake twice."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...core.claim import LAW, About, claims
from ...core.law import Law
from .futures import FutureNode
from .trying import Trying, fresh


@claims(
    LAW,
    trials=lambda rule: [fresh(rule)],
    about=About(conditioned=True),
    note="of the model given that the whole text meets the constraint, where `tries` texts come to one",
    paper="2510.01902",
    systems=("CARS (constrained adaptive rejection sampling)",),
)
@dataclass(frozen=True)
class Cars(Trying):
    """Draw from p itself where nothing is known and from p·θ where something is; begin anew if the text is not allowed.

    Where a beginning was tried before, x ∝ p(x|u)·θ(ux). The θ along a path cancel, so a whole text that meets the
    constraint has probability p(text)/θ(root) in every try, whatever was learnt before: all texts that come out have
    the law p(text | constraint met), from the first on. What is learnt makes it come sooner. p is the law after all
    other warps, truncations too; at temperature 0 it is plain decoding's one text. A text that a stop string cuts off
    meets no constraint.

    Claim: LAW, of the model given that the constraint is met; without one it is plain decoding's. Where none of `tries`
    texts meets it, that is an error and no text of another law.
    Cost: 1/θ(root) tries on the average, at first 1/p(constraint met); of each a forward and a mask per token, but what
    the last tries of a request have read is not read again.
    """

    tries: int = 256

    def shaped(self, law: Law, mask: Tensor, node: FutureNode | None) -> Law:
        return law if node is None else node.weigh(law, mask)
