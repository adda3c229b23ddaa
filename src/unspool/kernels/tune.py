"""The best cut for a product on the GPU at hand: medians over captured graphs, with weights that no cache holds."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import torch
from triton.errors import TritonError

from .linear import linear
from .tile import Tile, cuts

FRESH = 256 * 2**20  # bytes to go round before a weight is read again: several times an L2 cache
MOST_COPIES = 200
REPLAYS = 9


def microseconds(launches: Sequence[Callable[[], object]], replays: int = REPLAYS) -> float:
    """The median time of one of these launches, all captured one after the other in one graph."""
    for launch in launches[:2]:  # compiled outside of the capture
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    times = []
    for _ in range(replays):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)) * 1000 / len(launches))
    return median(times)


def copies(size: int) -> int:
    """How many copies of so many bytes to go round."""
    return max(2, min(MOST_COPIES, -(-FRESH // size)))


def tune(
    width: int,
    depth: int,
    n: int,
    *,
    dtype: torch.dtype = torch.bfloat16,
    normed: bool = False,
    activation: str | None = None,
    adds: bool = False,
    tried: Sequence[Tile] | None = None,
) -> list[tuple[float, Tile]]:
    """Time each cut for results [n, width] summed over `depth`, as the given parts make one launch: best first, in μs.

    A cut that does not compile or does not fit into shared memory is left out.
    """
    shape = (2 * width if activation else width, depth)
    number = copies(shape[0] * shape[1] * dtype.itemsize)
    weights = [torch.randn(shape, dtype=dtype, device="cuda") * depth**-0.5 for _ in range(number)]
    x = torch.randn(n, depth, dtype=dtype, device="cuda")
    norm = torch.ones(depth, dtype=dtype, device="cuda") if normed else None
    residual = torch.randn(n, width, dtype=dtype, device="cuda") if adds else None
    found: list[tuple[float, Tile]] = []
    for cut in tried if tried is not None else cuts(width, depth, n, activation is not None):
        one = partial(linear, x, norm=norm, eps=1e-5, residual=residual, activation=activation, cut=cut)
        launches = [partial(one, weight) for weight in weights]
        try:
            found.append((microseconds(launches), cut))
        except TritonError:
            continue
    return sorted(found, key=lambda pair: pair[0])
