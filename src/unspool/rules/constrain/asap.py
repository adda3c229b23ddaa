"""ASAp: local masking that learns, from text to text, what it leads into."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ...core.asks import Decoding
from ...core.chance import Chance
from ...core.claim import HEURISTIC, Branching, claims
from ...core.law import Law
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...core.warp.warp_limits import expect, whole
from .futures import FutureNode, Futures
from .trying import trying


def _fresh(text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
    """ASAp with nothing learnt yet, so that every branch of a proof begins alike."""
    return Asap()(text, chance, warp, stop)


@claims(HEURISTIC, trials=lambda rule: [_fresh], paper="2405.21047", systems=("ASAp (grammar-aligned decoding)",))
@dataclass(frozen=True)
class Asap(Branching):
    """Draw x ∝ p(x|u)·θ(ux) among what the constraint allows, θ the share of futures not yet seen to break it.

    θ begins at 1, where this is local masking, and only falls: after each text it is summed up anew along its path. A
    text that comes to a dead end is given up for another. p is the law after all other warps, truncations too; at
    temperature 0 the text is plain decoding's.

    Claim: HEURISTIC. The law of the k-th text tends to p(text | constraint met) as k grows; the first has the bias of
    local masking. The gap printed is that of the first text; the tests enumerate how it falls.
    Cost: one forward and one mask per token; a try that fails is lost.
    """

    futures: Futures = field(default_factory=Futures)
    tries: int = 64
    rows: int = 0

    def __post_init__(self) -> None:
        expect(whole(self.tries, 1), "asap:tries", self.tries, "a whole number of texts from 1 on")

    @property
    def texts(self) -> int:
        return 2

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        return trying(_weighed, self.futures, self.tries, self.rows, text, chance, warp, stop)


def _weighed(law: Law, mask: Tensor, node: FutureNode | None) -> Law:
    return (node or FutureNode(1.0)).weigh(law, mask)
