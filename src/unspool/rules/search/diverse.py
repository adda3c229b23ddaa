"""Diverse beam search: groups of beams that are fined for writing what groups before them have just written."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.asks import Decoding
from ...core.chance import Chance
from ...core.claim import HEURISTIC, Branching, Watchable, claims
from ...core.option import expect, real, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from .beam import BeamPool, beams
from .beam_cache import BeamCache
from .length_norm import LengthNorm, Patience, Power, likely


@claims(HEURISTIC, trials=lambda rule: [rule(4), rule(2, 2, 1.0)], paper="1610.02424", systems=("Diverse Beam Search",))
@dataclass(frozen=True)
class Diverse(Branching, Watchable):
    """`groups` beam searches side by side; each sees log p(x) − `apart`·(how often earlier groups just wrote x).

    The fine is the Hamming one and stays in a beam's score; finished texts are ranked by their own log p. A group that
    has finished fines nobody. The first group is an ordinary beam search of `width` beams, and so is every group if
    `apart` is 0. `watch` is told what all groups have finished, best first.

    Claim: HEURISTIC: the best text of all groups. One group of one beam is greedy decoding, as the tests enumerate.
    Cost: one forward per token, of groups·width rows; at most `rows` rows in all, then the best so far.
    """

    RANKS = True

    groups: int = 4
    width: int = 1
    apart: float = 0.5
    length: LengthNorm = Power(1.0)  # noqa: RUF009  (frozen)
    patience: Patience = likely
    rows: int = 0

    def __post_init__(self) -> None:
        expect(whole(self.groups, 1), "diverse:groups", self.groups, "a whole number of groups from 1 on")
        expect(whole(self.width, 1), "diverse:width", self.width, "a whole number of texts per group from 1 on")
        expect(real(self.apart, 0), "diverse:apart", self.apart, "a finite number from 0 on; usual is 0.5")
        BeamCache(self.rows)

    @property
    def texts(self) -> int:
        return self.groups * self.width

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        pools = [BeamPool(self.width, self.length, self.patience) for _ in range(self.groups)]
        return beams(pools, self.apart, text, warp, stop, self.rows, self.watch)
