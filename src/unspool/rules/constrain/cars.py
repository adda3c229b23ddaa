"""CARS: rejection sampling of whole texts that never tries the same mistake twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ...core.asks import Decoding
from ...core.chance import Chance
from ...core.claim import LAW, About, Branching, claims
from ...core.law import Law
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...core.warp.warp_limits import expect, whole
from .futures import FutureNode, Futures
from .trying import trying


def _fresh(text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
    """CARS with nothing learnt yet, so that every branch of a proof begins alike."""
    return Cars()(text, chance, warp, stop)


@claims(
    LAW,
    trials=lambda rule: [_fresh],
    about=About(conditioned=True),
    note="of the model given that the whole text meets the constraint",
    paper="2510.01902",
    systems=("CARS (constrained adaptive rejection sampling)",),
)
@dataclass(frozen=True)
class Cars(Branching):
    """Draw from p itself where nothing is known and from p·θ where something is; begin anew if the text is not allowed.

    Where a beginning was tried before, x ∝ p(x|u)·θ(ux). The θ along a path cancel, so a whole text that meets the
    constraint has probability p(text)/θ(root) in every try, whatever was learnt before: all texts that come out have
    the law p(text | constraint met), from the first on. What is learnt makes it come sooner. p is the law after all
    other warps, truncations too; at temperature 0 it is plain decoding's one text.

    Claim: LAW, of the model given that the constraint is met; without one it is plain decoding's.
    Cost: 1/θ(root) tries on the average, at first 1/p(constraint met); of each a forward and a mask per token, but what
    the last tries of a request have read is not read again.
    """

    futures: Futures = field(default_factory=Futures)
    tries: int = 256
    rows: int = 0

    def __post_init__(self) -> None:
        expect(whole(self.tries, 1), "cars:tries", self.tries, "a whole number of texts from 1 on")

    @property
    def texts(self) -> int:
        return 2

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        return trying(_free, self.futures, self.tries, self.rows, text, chance, warp, stop)


def _free(law: Law, mask: Tensor, node: FutureNode | None) -> Law:
    return law if node is None else node.weigh(law, mask)
