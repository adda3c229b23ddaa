"""A matrix times few tokens whose sums are split, all splits by one program: no sum waits for a launch.

Lines of weights are cut into chunks, each a row of one product on tensor cores; chunks of tokens are its columns, and
what is kept is where a chunk meets its own. The bits are those of as many programs and the sum of their shares.
"""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, fetch, start, wait
from .epilogue import finish
from .few_tokens import LEAST, in_order
from .fit import fitted
from .tile import Tile

LINES, STEP, STAGES = 64, 128, 6  # of weights that a program has at a time, and numbers of each; steps on their way
AHEAD = 4  # pieces of 64 numbers to fetch while the kernel before ends


@triton.jit
def _chunked(
    x, weight, bias, residual, out, n, width, depth, each,
    block: tl.constexpr, step: tl.constexpr, chunks: tl.constexpr, tokens: tl.constexpr, wide: tl.constexpr,
    ahead: tl.constexpr, has_bias: tl.constexpr, adds: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    line, lane = tl.arange(0, block * chunks), tl.arange(0, step)
    column, chunk = tl.program_id(0) * block + line // chunks, line % chunks
    other, token = tl.arange(0, wide) // tokens, tl.program_id(1) * tokens + tl.arange(0, wide) % tokens
    lines = weight + column.to(tl.int64)[:, None] * depth + chunk[:, None] * each + lane[None, :]
    source = x + token[:, None] * depth + other[:, None] * each + lane[None, :]
    inside = column < width
    if ahead > 0:
        place = column.to(tl.int64)[:, None] * depth + chunk[:, None] * each + 64 * tl.arange(0, ahead)[None, :]
        fetch(weight + tl.minimum(place, width.to(tl.int64) * depth - 1))
    wait(chained)
    own, one = tl.program_id(0) * block + tl.arange(0, block)[:, None], tl.arange(0, tokens)[None, :]
    one += tl.program_id(1) * tokens
    exists, spot = (own < width) & (one < n), one * width + own
    more = spot
    if adds:  # asked for now, it is there when the sums are
        more = tl.load(residual + spot, mask=exists, other=0.0)
    y = tl.zeros([block * chunks, wide], tl.float32)
    ends, others = tl.minimum(depth - chunk * each, each), tl.minimum(depth - other * each, each)
    asked = (token < n) & (other < chunks)
    for at in range(0, each, step):
        part = tl.load(source + at, mask=asked[:, None] & (at + lane[None, :] < others[:, None]), other=0.0)
        here = inside[:, None] & (at + lane[None, :] < ends[:, None])
        w = tl.load(lines + at, mask=here, other=0.0, eviction_policy="evict_first")
        y = tl.dot(w, tl.trans(part), y, input_precision="ieee")
    start(chained)
    met = tl.where(other[None, :] == chunk[:, None], y, 0.0)
    mine = tl.sum(tl.reshape(met, [block * chunks, wide // tokens, tokens]), 1)
    total = in_order(tl.reshape(mine, [block, chunks, tokens]), chunks)
    total = finish(total, bias, more, own, exists, x.dtype.element_ty, has_bias, adds)
    tl.store(out + spot, total.to(out.dtype.element_ty), mask=exists)


def chunked(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, out: Tensor, cut: Tile) -> Tensor:
    """`linear` of few tokens x [n, in] by a cut with splits, into `out`, in one launch."""
    (n, depth), width, chunks = x.shape, out.shape[1], cut.splits
    each = triton.cdiv(triton.cdiv(depth, cut.step), chunks) * cut.step
    tokens, block, chain = triton.next_power_of_2(min(n, 16)), LINES // chunks, chained()
    b, r = (x if given is None else given for given in (bias, residual))
    fitted(
        lambda stages: _chunked[(triton.cdiv(width, block), triton.cdiv(n, tokens))](
            x, weight, b, r, out, n, width, depth, each,
            block=block, step=STEP, chunks=chunks, tokens=tokens, wide=max(LEAST, chunks * tokens),
            ahead=AHEAD if chain else 0, has_bias=bias is not None, adds=residual is not None,
            num_warps=4, num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        STAGES,
        ("chunked", chunks, tokens, STEP, x.dtype),
    )  # fmt: skip
    return out
