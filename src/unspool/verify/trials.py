"""The drafts that every verifier is put to the test with: nothing, looked-up and drawn chains, and drawn bushes."""

from __future__ import annotations

from collections.abc import Iterator

from ..asks import Verify
from ..claim import Method


def drafted(verify: Verify) -> Iterator[Method]:
    """Small complete methods around `verify`, each cheap enough to enumerate."""
    from ..decode.speculate import Speculate
    from ..draft import Bush, Chain, Lookup, Nothing

    yield Speculate(Nothing(), verify)
    yield Speculate(Lookup(ngram=1, least=1, depth=2), verify)
    yield Speculate(Chain(depth=2), verify)
    yield Speculate(Bush(widths=(2,)), verify)
    yield Speculate(Bush(widths=(2, 1)), verify)
