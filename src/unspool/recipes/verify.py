"""Recipes of verifiers. Most give the rule alone, which stands behind any drafter: `chain:depth=4 + block`.

By its own name such a rule is a method with the drafter of `USUAL`: what its paper drafts with, or what needs least.
"""

from __future__ import annotations

from typing import Annotated

from ..core.asks import TARGET, Verify
from ..core.claim import Method
from ..core.errors import BadRequest
from ..core.option import Choice, Depth, Few, FileName, Holes, Range, Share, Weight
from ..loops.speculate import Speculate
from ..rules import draft, verify

USUAL = {
    "block": "chain",
    "conditional": "aligned",
    "greedy": "lookup",
    "judged": "chain",
    "kseq": "specinfer",
    "lenient": "chain",
    "mixture": "chain",
    "multipath": "specinfer",
    "race": "raced",
    "rejection": "chain",
    "rollback": "bild",
    "sample_match": "lookup",
    "synthetic": "chain",
    "top_beta": "lookup",
    "traversal": "rsd_c",
    "typical": "heads",
    "zeroing": "lookup",
}


def blended(
    weight: Share = 0.5, depth: Depth = 16, by: Annotated[str, Choice((TARGET, "draft"))] = TARGET, window: Holes = 0
) -> Method:
    """A raced block, accepted as far as the blended law agrees; `window` places before it are computed anew, 0: all."""
    return Speculate(verify.RacedBlock(depth, by, window), verify.Blended(weight), budget=depth)


def block() -> Verify:
    """As many tokens of one path as an exact rule can accept."""
    return verify.block


def conditional(base: Share = 0.1, slope: Weight = 0.1) -> Verify:
    """What clears a bar that falls with the entropy."""
    return verify.Conditional(base, slope)


def greedy() -> Verify:
    """The most probable token at every node."""
    return verify.greedy


def judged(head: FileName = "", threshold: Share = 0.5) -> Verify:
    """What plain decoding draws, and drafted tokens that the trained head of a file holds right."""
    if not head:
        raise BadRequest(
            "judged needs a trained head: make one with `unspool train judge --draft MODEL --out FILE`, then write "
            "judged:head=FILE; without one there is lenient"
        )
    return verify.Judged(draft.AcceptanceHead.load(head), threshold)


def kseq() -> Verify:
    """One common test for several independent drafts."""
    return verify.kseq


def lenient(lenience: Annotated[float, Range(0.001, 1)] = 0.8) -> Verify:
    """Rejection that looks away a little."""
    return verify.Lenient(lenience)


def mixture(weight: Share = 0.2) -> Verify:
    """Rejection for a target that leans towards its draft."""
    return verify.Mixture(weight)


def multipath() -> Verify:
    """The most promising of several paths, weighed as a block."""
    return verify.multipath


def race() -> Verify:
    """Sample matching by races."""
    return verify.race


def rejection() -> Verify:
    """Speculative sampling."""
    return verify.rejection


def rollback(surprise: Annotated[float, Range(0, 1000, endless=True)] = 5.0) -> Verify:
    """BiLD: a little model writes while it is sure, the big one rolls back."""
    return verify.Rollback(surprise)


def sample_match() -> Verify:
    """What plain decoding would have drawn, as far as it was drafted."""
    return verify.sample_match


def synthetic(rate: Share = 0.7) -> Verify:
    """So many drafted tokens accepted as a planned draft is to reach; the text is nobody's."""
    return verify.Synthetic(rate)


def top_beta(beta: Few = 3, tau: Annotated[float, Range(0, 1000, endless=True)] = 1.0) -> Verify:
    """What is nearly as good as the greedy token."""
    return verify.TopBeta(beta, tau)


def traversal() -> Verify:
    """Block verification for trees."""
    return verify.traversal


def typical(epsilon: Share = 0.09, alpha: Annotated[float, Range(0, 0.999)] = 0.3) -> Verify:
    """What does not surprise so uncertain a law."""
    return verify.TypicalAcceptance(epsilon, alpha)


def zeroing() -> Verify:
    """One candidate after the other."""
    return verify.zeroing
