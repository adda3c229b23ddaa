"""The drafts that verifiers are put to the test with: nothing, looked-up and drawn chains, drawn bushes and bunches."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.asks import Verify
from ...core.claim import Method
from ...loops.speculate import Speculate
from .. import draft


def drafted(verify: Verify) -> Iterator[Method]:
    """Small complete methods around `verify`, each cheap enough to enumerate."""
    yield Speculate(draft.Nothing(), verify)
    yield Speculate(draft.Lookup(ngram=1, least=1, depth=2), verify)
    yield Speculate(draft.Chain(depth=2), verify)
    yield Speculate(draft.RSDC(widths=(2,)), verify)
    yield Speculate(draft.RSDC(widths=(2, 1)), verify)
    yield Speculate(draft.RSDC(widths=(4,)), verify)


def chained(verify: Verify) -> Iterator[Method]:
    """For rules that read one path: a copied chain, a drawn one, and a tree in which the others must not matter."""
    yield Speculate(draft.Lookup(ngram=1, least=1, depth=2), verify)
    yield Speculate(draft.Chain(depth=2), verify)
    yield Speculate(draft.RSDC(widths=(2,)), verify)


def branched(verify: Verify) -> Iterator[Method]:
    """For rules that read whole trees: what `chained` has, and siblings below a drawn token."""
    yield from chained(verify)
    yield Speculate(draft.RSDC(widths=(1, 2)), verify)
    yield Speculate(draft.RSDC(widths=(4,)), verify)


def bunched(verify: Verify) -> Iterator[Method]:
    """For rules that want independent drafts: a bunch, and a chain, which is a bunch of one."""
    yield Speculate(draft.SpecInfer(paths=2, depth=1), verify)
    yield Speculate(draft.SpecInfer(paths=2, depth=2), verify)
    yield Speculate(draft.SpecInfer(paths=4, depth=1), verify)
    yield Speculate(draft.Chain(depth=2), verify)
