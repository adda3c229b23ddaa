"""What the experts of few tokens say, weighed and added up: their last products and the sum in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .fit import fitted

BLOCK, STEP, STAGES = 16, 128, 4  # results of a program, numbers of a row at a time, stages of the pipeline
COLUMNS = 8  # of a product on tensor cores; one of them is the token


@triton.jit
def _answer(
    x, weight, bias, chosen, weights, beside, residual, out, dim, depth,
    active: tl.constexpr, lanes: tl.constexpr, block: tl.constexpr, step: tl.constexpr, columns: tl.constexpr,
    has_bias: tl.constexpr, weighs: tl.constexpr, more: tl.constexpr, adds: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """`block` results of a token; every expert has a warp of its own."""
    token = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < dim
    lane, slot, first = tl.arange(0, step), tl.arange(0, lanes), tl.arange(0, columns) == 0
    kind = x.dtype.element_ty
    wait(chained)
    real = slot < active
    expert = tl.load(chosen + token * active + slot, mask=real, other=0).to(tl.int64)
    line = weight + (expert[:, None] * dim + column[None, :])[:, :, None] * depth + lane[None, None, :]
    source = (
        x + (token * active + slot)[:, None, None] * depth + lane[None, :, None] + tl.zeros([1, 1, columns], tl.int32)
    )
    y = tl.zeros([lanes, block, columns], tl.float32)
    for at in range(0, depth, step):
        within = at + lane < depth
        w = tl.load(line + at, mask=(real[:, None] & inside[None, :])[:, :, None] & within[None, None, :], other=0.0)
        part = tl.load(
            source + at, mask=(real[:, None] & within[None, :])[:, :, None] & first[None, None, :], other=0.0
        )
        y = tl.dot(w, part, y, input_precision="ieee")
    start(chained)
    said = tl.sum(tl.where(first[None, None, :], y, 0.0), 2)
    if has_bias:
        said += tl.load(bias + expert[:, None] * dim + column[None, :], mask=inside[None, :], other=0.0).to(tl.float32)
    said = said.to(kind).to(tl.float32)
    total = tl.zeros([block], tl.float32)
    for k in tl.static_range(active):  # in the order in which they were chosen
        own = tl.sum(tl.where((slot == k)[:, None], said, 0.0), 0)
        if weighs:
            total = tl.fma(own, tl.load(weights + token * active + k) + tl.zeros([block], tl.float32), total)
        else:
            total += own
    total = total.to(kind).to(tl.float32)
    if more:
        total += tl.load(beside + token * dim + column, mask=inside, other=0.0).to(tl.float32)
        total = total.to(kind).to(tl.float32)
    if adds:
        total += tl.load(residual + token * dim + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * dim + column, total.to(kind), mask=inside)


def answer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    chosen: Tensor,
    weights: Tensor,
    beside: Tensor | None = None,
    residual: Tensor | None = None,
    weighs: bool = True,
) -> Tensor:
    """`grouped.combine` of `grouped.grouped` for pairs x [n · active, in] of tokens and their experts.

    Every step rounds as there; sums may have another order, that of narrow products on tensor cores.

    weight [experts, dim, in] and bias [experts, dim] are those of the experts `chosen` [n, active], each read once for
    every token that chose it. x has 16 bits. Cost: one launch.
    """
    (n, active), (_, dim, depth) = chosen.shape, weight.shape
    out = torch.empty(n, dim, dtype=x.dtype, device=x.device)
    lanes, chain = triton.next_power_of_2(active), chained()
    b, m, r = (out if given is None else given for given in (bias, beside, residual))
    fitted(
        lambda stages: _answer[(triton.cdiv(dim, BLOCK), n)](
            x, weight, b, chosen, weights, m, r, out, dim, depth,
            active=active, lanes=lanes, block=BLOCK, step=STEP, columns=COLUMNS, has_bias=bias is not None,
            weighs=weighs, more=beside is not None, adds=residual is not None,
            num_warps=min(8, lanes), num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        STAGES,
        ("answer", lanes, x.dtype),
    )  # fmt: skip
    return out
