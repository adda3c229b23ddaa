"""Resident drafts: made, verified and learnt from where the model is, so that no round waits for the host."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Verify
from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.tree import NOTHING
from ...core.verifier import sample_match
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate

LONG = 1 << 20  # tokens; as good as for ever


@claims(
    SEED,
    name="on_device",
    trials=lambda _: [Speculate(OnDevice(3), budget=3)],
    paper="2408.08696",
    systems=("Token Recycling and copies, on the device",),
)
@dataclass(frozen=True)
class OnDevice(Draft):
    """The likeliest `nodes` tokens by remembered laws and by a copy, grown on the device that verifies them.

    As `merge`, with fixed trust in place of counted: a law met after the same two tokens of this text is worth 0.8 of
    its weight, after the last one alone 0.5, a copy after a match of n tokens n / (n + 3); the best paths make the
    tree. Where a trained drafter is part of the device's step, the tree grows around its chain. Some rounds go by
    before the host looks, and where drafts bring less than plain steps by the device's clock, it steps. A runner that
    cannot draft for itself decodes plainly; so does this one where somebody looks at laws, or where a warp that kernels
    do not know shapes them.

    Claim: SEED: sample matching on the device draws what plain decoding draws. Cost: one forward per round, nothing
    between.
    """

    nodes: int = 31

    def __post_init__(self) -> None:
        if not 3 <= self.nodes <= 63:
            raise BadRequest(f"on_device:nodes={self.nodes} cannot be used; expected 3 to 63 nodes")

    @property
    def verifies(self) -> Verify:
        return sample_match

    def begin(self, prefix: Prefix) -> Source:
        return _Resting(self.nodes)


class _Resting(Source):
    def __init__(self, nodes: int) -> None:
        self.nodes = nodes

    @property
    def ahead(self) -> int:
        return self.nodes

    def rest(self, prefix: Prefix) -> int:
        return LONG

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        return NOTHING
