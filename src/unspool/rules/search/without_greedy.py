"""What a search sees of a request's warps."""

from __future__ import annotations

from ...core.warp.temperature import Temperature
from ...core.warp.warp import Both, Same, Warp


def without_greedy(warp: Warp) -> Warp:
    """The warps without a temperature of 0 at their end.

    That one leaves a single token at every place, and so nothing to search: a search that draws nothing is as
    deterministic without it.
    """
    if isinstance(warp, Temperature) and warp.t == 0:
        return Same()
    if not isinstance(warp, Both):
        return warp
    second = without_greedy(warp.second)
    if second is warp.second:
        return warp
    return without_greedy(warp.first) if isinstance(second, Same) else Both(warp.first, second)
