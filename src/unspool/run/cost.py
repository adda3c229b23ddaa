"""Measure what a forward costs: once per model and device, then every tree can be cut to what pays there."""

from __future__ import annotations

from itertools import accumulate
from statistics import median
from time import perf_counter

from ..errors import BadRequest
from ..grow.cost import Cost
from ..law import Drawn, Law
from ..tree import NOTHING, ROOT, Tree
from .session import Asked, Causal

ROWS = (1, 2, 4, 8, 16, 32, 64)


def measure(model: Causal, rows: tuple[int, ...] = ROWS, repeats: int = 5, behind: int = 64) -> Cost:
    """t(n) for these numbers of rows, behind a text of `behind` tokens: medians, made to rise with n.

    Every forward computes the last kept token and a drafted chain, so n rows are n − 1 drafted nodes. One round over
    all sizes is made first and not counted.

    Cost: (repeats + 1) · len(rows) forwards and one prompt.
    """
    if not rows or min(rows) < 1 or repeats < 1 or behind < 1:
        raise BadRequest(
            f"cannot measure rows {rows} {repeats} times behind {behind} tokens; "
            "expected at least one number of rows, all from 1 on, one repeat and one token"
        )
    sizes = sorted(set(rows))
    times: dict[int, list[float]] = {n: [] for n in sizes}
    session = model.open([i % model.vocab for i in range(behind)])
    try:
        model.score([Asked(session, NOTHING)])
        for turn in range(repeats + 1):
            for n in sizes:
                tokens = [(turn + i) % model.vocab for i in range(n - 1)]
                session.keep(NOTHING, (ROOT,), (turn % model.vocab,))
                tree = Tree.chain([Drawn(x, Law.point(x)) for x in tokens])
                began = perf_counter()
                (scores,) = model.score([Asked(session, tree)])
                scores.law(len(tree) - 1).best  # noqa: B018  (waits for the device; with no tree, −1 is the root)
                times[n] += [perf_counter() - began] if turn else []
    finally:
        session.close()
        model.forget()
    medians = (median(times[n]) for n in sizes)
    # A forward over more rows is not faster; where the clock says so it is noise, which would plant useless nodes.
    return Cost(tuple(sizes), tuple(accumulate(medians, max)))
