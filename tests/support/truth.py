"""The law of whole texts of a table under any warp and stop, written without the decoding loop.

The proofs have a truth of their own, `plainly`, which shares no warp and no stop with what is proved.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from unspool.core.asks import Done
from unspool.core.stop import Stop, Tail
from unspool.core.warp.warp import Warp
from unspool.runtime.cache.table_model import Table


def law_of_text(table: Table, prompt: tuple[int, ...], warp: Warp, stop: Stop) -> dict[Done, float]:
    """The exact joint law of whole texts: the product of the warped conditionals up to the first stop."""
    law: defaultdict[Done, float] = defaultdict(float)

    def visit(tokens: tuple[int, ...], state: Any, tail: Tail, mass: float) -> None:
        for token, p in enumerate(warp(state, table.law(prompt + tokens)).spread(table.law(prompt)).tolist()):
            if p == 0:
                continue
            _, reason, after, trim = stop.cut(tail, (token,))
            if reason:
                law[Done((*tokens, token), reason, trim)] += mass * p
            else:
                visit((*tokens, token), warp.step(state, token), after, mass * p)

    visit((), warp.start(prompt), stop.start(), 1.0)
    return dict(law)
