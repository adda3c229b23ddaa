"""A state space with one decay per head and token, token after token (Mamba-2, 2405.21060)."""

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
import triton
import triton.language as tl
from torch import Tensor

from .carried_state import entered, left, softplus, walked
from .draft_chain import chained, start, wait
from .kernel_rows import Rows

VALUES, WARPS = 16, 2  # rows of a state that a program has, and its warps


@triton.jit(do_not_specialize=["tokens", "heads"])
def _mamba(
    mixed, dt, decay, shift, skip, before, into, count, states, out, tokens, mixed_stride, dt_stride, heads,
    least, most,
    share: tl.constexpr, keys: tl.constexpr, width: tl.constexpr, inner: tl.constexpr, groups: tl.constexpr,
    lanes: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Some rows of the state of one head, over all tokens of a row; the next token is read while one is computed."""
    start(chained)
    wait(chained)
    row, head = tl.program_id(0), tl.program_id(1)
    key, value = tl.arange(0, lanes), tl.program_id(2) * block + tl.arange(0, block)
    has_key, has_value = key < keys, value < width
    first, real = row * tokens, tl.load(count + row)
    rate, offset, direct = tl.load(decay + head), tl.load(shift + head), tl.load(skip + head)
    own_x, own_b = head * width + value, inner + head // share * keys + key
    at, inside = value[:, None] * keys + key[None, :], has_value[:, None] & has_key[None, :]
    stride = heads.to(tl.int64) * width * keys
    states += head.to(tl.int64) * width * keys
    mixed += first.to(tl.int64) * mixed_stride
    dt += first.to(tl.int64) * dt_stride + head
    out += first.to(tl.int64) * inner + own_x
    some = real > 0
    next_x = tl.load(mixed + own_x, mask=has_value & some, other=0.0)
    next_b = tl.load(mixed + own_b, mask=has_key & some, other=0.0)
    next_c = tl.load(mixed + groups * keys + own_b, mask=has_key & some, other=0.0)
    next_dt, next_above = tl.load(dt, mask=some, other=0.0), tl.load(before + first, mask=some, other=0)
    state = tl.zeros([block, lanes], tl.float32)
    for i in range(real):
        x, b, c = next_x.to(tl.float32), next_b.to(tl.float32), next_c.to(tl.float32)
        step, above = next_dt.to(tl.float32), next_above
        mixed += mixed_stride
        dt += dt_stride
        more = i + 1 < real
        next_x = tl.load(mixed + own_x, mask=has_value & more, other=0.0)
        next_b = tl.load(mixed + own_b, mask=has_key & more, other=0.0)
        next_c = tl.load(mixed + groups * keys + own_b, mask=has_key & more, other=0.0)
        next_dt = tl.load(dt, mask=more, other=0.0)
        next_above = tl.load(before + first + i + 1, mask=more, other=0)
        step = tl.minimum(tl.maximum(softplus(step + offset), least), most)
        state = entered(state, states, stride, at, inside, above, first + i, i == 0, into)
        state *= tl.exp(step * rate)
        u = x * step
        state = tl.fma(u[:, None] + tl.zeros_like(state), b[None, :] + tl.zeros_like(state), state)
        left(state, states, stride, at, inside, first + i, into)
        y = tl.fma(x, direct + tl.zeros_like(x), tl.sum(state * c[None, :], 1))
        tl.store(out, y, mask=has_value)
        out += inner
    for _ in range(real, tokens):
        tl.store(out, tl.zeros([block], tl.float32), mask=has_value)
        out += inner


def mamba(
    mixed: Tensor,
    dt: Tensor,
    decay: Tensor,
    shift: Tensor,
    skip: Tensor,
    rows: Rows,
    states: Tensor,
    groups: int,
    limits: tuple[float, float],
) -> Tensor:
    """What every token reads from the matrix of each head, in float32 [n, heads · value].

    `mixed` [n, heads · value + 2 · groups · key] are x, B and C, `dt` [n, heads] what steps are made of; `decay`,
    `shift` and `skip` [heads] and `states` [numbers, heads, value, key] are float32. With Δ = softplus(dt + shift)
    within `limits`: S_t = exp(Δ·decay)·S + Δx ⊗ B and y = S_t·C + skip·x.
    Tokens of a row follow each other in one order of sums, so bits depend on no batch, tree or chunk.
    Cost: one launch; a row's tokens one after the other, its heads and their values side by side.
    """
    n, (_, heads, width, keys) = len(mixed), states.shape
    assert rows.before is not None
    assert mixed.stride(1) == dt.stride(1) == 1
    out = torch.empty(n, heads * width, dtype=torch.float32, device=mixed.device)
    chain, block = chained(), min(VALUES, triton.next_power_of_2(width))
    _mamba[(rows.number, heads, triton.cdiv(width, block))](
        mixed, dt, decay, shift, skip, rows.before, rows.into, rows.count, states, out, rows.tokens,
        mixed.stride(0), dt.stride(0), heads, *limits,
        share=heads // groups, keys=keys, width=width, inner=heads * width, groups=groups,
        lanes=triton.next_power_of_2(keys), block=block, num_warps=WARPS, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out


def reference(
    mixed: Tensor,
    dt: Tensor,
    decay: Tensor,
    shift: Tensor,
    skip: Tensor,
    rows: Rows,
    states: Tensor,
    groups: int,
    limits: tuple[float, float],
) -> Tensor:
    """The same, token by token; states are written too."""
    _, heads, width, keys = states.shape
    out = torch.zeros(len(mixed), heads, width)

    def passed(token: int, state: Tensor) -> Tensor:
        x, b, c = torch.split(mixed[token].float(), [heads * width, groups * keys, groups * keys])
        x = x.view(heads, width)
        b, c = (part.view(groups, keys).repeat_interleave(heads // groups, 0) for part in (b, c))
        step = F.softplus(dt[token].float() + shift).clamp(*limits)
        state = state * (step * decay).exp()[:, None, None] + (x * step[:, None])[:, :, None] * b[:, None]
        out[token] = (state * c[:, None]).sum(-1) + skip[:, None] * x
        return state

    walked(rows, states, passed)
    return out.view(len(mixed), -1)
