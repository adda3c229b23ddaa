"""What a token's experts say of it, weighed and summed by the programs that multiply: no sum waits for a launch.

Every program has some results of one token, and the lines of all its experts for them. Lines of different experts are
rows of one product on tensor cores, what enters each expert a column of its own; what is kept is where both meet.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, fetch, start, wait
from .few_tokens import LEAST
from .fit import fitted

LINES = 128  # of weights that a program has at a time: of all experts of a token
AHEAD = 4  # pieces of 64 numbers to fetch while the kernel before ends
STEP, STAGES, WARPS = 128, 4, 4


@triton.jit
def _answer(
    bent, weight, bias, chosen, factors, beside, residual, out, width, depth,
    active: tl.constexpr, slots: tl.constexpr, block: tl.constexpr, step: tl.constexpr, wide: tl.constexpr,
    has_bias: tl.constexpr, more: tl.constexpr, adds: tl.constexpr, weighs: tl.constexpr, ahead: tl.constexpr,
    chained: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(1).to(tl.int64)
    line, lane, slot = tl.arange(0, block * slots), tl.arange(0, step), tl.arange(0, slots)
    turn, other = line % slots, tl.arange(0, wide)
    column = tl.program_id(0) * block + line // slots
    real = (turn < active) & (column < width)
    # The choice was there before the kernel before began, which has waited for it.
    expert = tl.load(chosen + token * active + turn, mask=turn < active, other=0).to(tl.int64)
    factor = tl.load(factors + token * active + slot, mask=slot < active, other=0.0)
    source = bent + (token * active + other)[:, None] * depth + lane[None, :]
    lines = weight + (expert * width + column)[:, None] * depth + lane[None, :]
    if ahead > 0:
        fetch(weight + (expert * width + column)[:, None] * depth + 64 * tl.arange(0, ahead)[None, :])
    wait(chained)
    kind = bent.dtype.element_ty
    y = tl.zeros([block * slots, wide], tl.float32)
    for at in range(0, depth, step):
        here = (at + lane < depth)[None, :]
        part = tl.load(source + at, mask=(other < active)[:, None] & here, other=0.0)
        w = tl.load(lines + at, mask=real[:, None] & here, other=0.0, eviction_policy="evict_first")
        y = tl.dot(w, tl.trans(part), y, input_precision="ieee")
    start(chained)
    said = tl.sum(tl.where(other[None, :] == turn[:, None], y, 0.0), 1)
    if has_bias:
        said += tl.load(bias + expert * width + column, mask=real, other=0.0).to(tl.float32)
    said = tl.reshape(said.to(kind).to(tl.float32), [block, slots])
    total = tl.zeros([block], tl.float32)
    for k in tl.static_range(active):
        one = tl.sum(tl.where(slot[None, :] == k, said, 0.0), 1)
        if weighs:
            total = tl.fma(one, tl.sum(tl.where(slot == k, factor, 0.0), 0) + tl.zeros([block], tl.float32), total)
        else:
            total += one
    total = total.to(kind).to(tl.float32)
    own = tl.program_id(0) * block + tl.arange(0, block)
    if more:
        total += tl.load(beside + token * width + own, mask=own < width, other=0.0).to(tl.float32)
        total = total.to(kind).to(tl.float32)
    if adds:
        total += tl.load(residual + token * width + own, mask=own < width, other=0.0).to(tl.float32)
    tl.store(out + token * width + own, total.to(kind), mask=own < width)


def answers(
    bent: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    chosen: Tensor,
    weights: Tensor,
    beside: Tensor | None = None,
    residual: Tensor | None = None,
    weighs: bool = True,
) -> Tensor:
    """`combine` of what `grouped` makes of bent [n · active, in], whose pairs stand in the order of choice: [n, out].

    weight [experts, out, in], bias [experts, out]; experts and their weights [n, active] were there before the kernel
    before this one began, which has waited for them. Bits are those of both.
    Cost: the matrices of the chosen experts, once for every token; one launch.
    """
    (n, active), (_, width, depth) = chosen.shape, weight.shape
    slots = triton.next_power_of_2(active)
    block, step, stages = max(1, LINES // slots), STEP, STAGES
    if bent.dtype == torch.float32:
        block, step, stages = max(1, 32 // slots), 32, 2
    out = torch.empty(n, width, dtype=bent.dtype, device=bent.device)
    chain = chained()
    fitted(
        lambda stages: _answer[(triton.cdiv(width, block), n)](
            bent, weight, bent if bias is None else bias, chosen, weights, out if beside is None else beside,
            out if residual is None else residual, out, width, depth,
            active=active, slots=slots, block=block, step=step, wide=max(LEAST, slots), has_bias=bias is not None,
            more=beside is not None, adds=residual is not None, weighs=weighs,
            ahead=AHEAD if chain and depth >= 64 * AHEAD else 0,
            num_warps=WARPS, num_stages=stages, chained=chain, launch_pdl=chain,
        ),
        stages,
        ("answers", block, slots, step, bent.dtype),
    )  # fmt: skip
    return out
