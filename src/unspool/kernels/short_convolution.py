"""A convolution over the last few tokens of a text, each number by itself, whatever tree the tokens form."""

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
import triton
import triton.language as tl
from torch import Tensor

from .carried_state import real_tokens
from .draft_chain import chained, start, wait
from .kernel_rows import Rows

BLOCK = 256  # numbers of a token that a program has


@triton.jit(do_not_specialize=["tokens"])
def _convolve(
    x, weight, bias, times, before, into, count, states, out, tokens, width, stride, times_stride,
    size: tl.constexpr, block: tl.constexpr, has_bias: tl.constexpr, silu: tl.constexpr, gates: tl.constexpr,
    chained: tl.constexpr,
):  # fmt: skip
    """Newest term first; what a state holds is read before any of it is written anew."""
    start(chained)
    wait(chained)
    token = tl.program_id(0)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    spot = out + token.to(tl.int64) * width + column
    if token % tokens < tl.load(count + token // tokens):
        kind = x.dtype.element_ty
        newer = tl.load(x + token.to(tl.int64) * stride + column, mask=inside, other=0.0)
        y = newer.to(tl.float32) * tl.load(weight + column * size + size - 1, mask=inside, other=0.0).to(tl.float32)
        above, leaves = tl.load(before + token), tl.load(into + token)
        place = tl.full([], size - 2, tl.int32)
        kept = states + leaves.to(tl.int64) * (size - 1) * width + column
        for j in tl.static_range(1, size):
            fresh = above >= 0
            older = tl.load(x + above.to(tl.int64) * stride + column, mask=inside & fresh, other=0.0)
            held = states + ((~above).to(tl.int64) * (size - 1) + place) * width + column
            older += tl.load(held, mask=inside & (above < 0), other=0.0)
            tl.store(kept + (size - 1 - j) * width, newer, mask=inside & (leaves >= 0))
            factor = tl.load(weight + column * size + size - 1 - j, mask=inside, other=0.0).to(tl.float32)
            y = tl.fma(older.to(tl.float32), factor, y)
            place = tl.where(fresh, place, place - 1)
            above = tl.where(fresh, tl.load(before + above, mask=fresh, other=0), above)
            newer = older
        if has_bias:
            y += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
        y = y.to(kind).to(tl.float32)
        if silu:
            y = y / (1.0 + tl.exp(-y))
        if gates:
            y *= tl.load(times + token.to(tl.int64) * times_stride + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(spot, y.to(kind), mask=inside)
    else:
        tl.store(spot, tl.zeros([block], x.dtype.element_ty), mask=inside)


def short_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    rows: Rows,
    states: Tensor,
    *,
    silu: bool = False,
    times: Tensor | None = None,
) -> Tensor:
    """Σ_j w_j·x_{t−j} + b for x [n, width], weight [width, size], the token's own factor last; then SiLU, or `times`.

    `states` [numbers, size − 1, width] hold the inputs of the last tokens, the newest last. Padding gets zeros.
    Cost: one launch, which reads every token `size` times.
    """
    (n, width), size = x.shape, weight.shape[1]
    assert rows.before is not None
    assert x.stride(1) == 1
    out = torch.empty(n, width, dtype=x.dtype, device=x.device)
    chain, block = chained(), min(BLOCK, triton.next_power_of_2(width))
    _convolve[(n, triton.cdiv(width, block))](
        x, weight, x if bias is None else bias, x if times is None else times, rows.before, rows.into, rows.count,
        states, out, rows.tokens, width, x.stride(0), 0 if times is None else times.stride(0),
        size=size, block=block, has_bias=bias is not None, silu=silu, gates=times is not None,
        num_warps=max(1, block // 64), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out


def reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    rows: Rows,
    states: Tensor,
    *,
    silu: bool = False,
    times: Tensor | None = None,
) -> Tensor:
    """The same, token by token, in float32; states are written too."""
    out, size = torch.zeros_like(x), weight.shape[1]
    assert rows.before is not None
    assert rows.into is not None
    for token in real_tokens(rows):
        above, held = token, list[Tensor]()
        while above >= 0:
            held.append(x[above])
            above = int(rows.before[above])
        held = [*held[::-1][-size:]] if len(held) >= size else [*states[~above], *held[::-1]][-size:]
        y = (torch.stack(held, 1).float() * weight.float()).sum(1)
        y = (y if bias is None else y + bias.float()).to(x.dtype).float()
        y = F.silu(y) if silu else y
        out[token] = (y if times is None else y * times[token].float()).to(x.dtype)
        if int(rows.into[token]) >= 0:
            states[int(rows.into[token])] = torch.stack(held[1:])
    return out
