"""The gated delta rule, token after token: one matrix per head that every token corrects (2412.06464)."""

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
def _delta(
    mixed, ba, decay, shift, before, into, count, states, out, tokens, mixed_stride, ba_stride, heads, scale,
    group: tl.constexpr, keys: tl.constexpr, width: tl.constexpr, all_keys: tl.constexpr,
    lanes: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Some rows of the state of one head, over all tokens of a row; the next token is read while one is computed."""
    start(chained)
    wait(chained)
    row, head = tl.program_id(0), tl.program_id(1)
    key, value = tl.arange(0, lanes), tl.program_id(2) * block + tl.arange(0, block)
    has_key, has_value = key < keys, value < width
    first, real = row * tokens, tl.load(count + row)
    rate, offset = tl.load(decay + head), tl.load(shift + head)
    own_q, own_v = head // group * keys + key, 2 * all_keys + head * width + value
    at, inside = value[:, None] * keys + key[None, :], has_value[:, None] & has_key[None, :]
    stride = heads.to(tl.int64) * width * keys
    states += head.to(tl.int64) * width * keys
    mixed += first.to(tl.int64) * mixed_stride
    ba += first.to(tl.int64) * ba_stride + head
    out += first.to(tl.int64) * heads * width + head * width + value
    some = real > 0
    next_q = tl.load(mixed + own_q, mask=has_key & some, other=0.0)
    next_k = tl.load(mixed + all_keys + own_q, mask=has_key & some, other=0.0)
    next_v = tl.load(mixed + own_v, mask=has_value & some, other=0.0)
    next_b, next_a = tl.load(ba, mask=some, other=0.0), tl.load(ba + heads, mask=some, other=0.0)
    next_above = tl.load(before + first, mask=some, other=0)
    state = tl.zeros([block, lanes], tl.float32)
    for i in range(real):
        q, k, v = next_q.to(tl.float32), next_k.to(tl.float32), next_v.to(tl.float32)
        a, b, above = next_a.to(tl.float32), next_b.to(tl.float32), next_above
        mixed += mixed_stride
        ba += ba_stride
        more = i + 1 < real
        next_q = tl.load(mixed + own_q, mask=has_key & more, other=0.0)
        next_k = tl.load(mixed + all_keys + own_q, mask=has_key & more, other=0.0)
        next_v = tl.load(mixed + own_v, mask=has_value & more, other=0.0)
        next_b, next_a = tl.load(ba, mask=more, other=0.0), tl.load(ba + heads, mask=more, other=0.0)
        next_above = tl.load(before + first + i + 1, mask=more, other=0)
        q *= tl.rsqrt(tl.sum(q * q, 0) + 1e-6) * scale
        k *= tl.rsqrt(tl.sum(k * k, 0) + 1e-6)
        state = entered(state, states, stride, at, inside, above, first + i, i == 0, into)
        state *= tl.exp(rate * softplus(a + offset))
        known = tl.sum(state * k[None, :], 1)
        u = (v - known) / (1.0 + tl.exp(-b))
        state = tl.fma(u[:, None] + tl.zeros_like(state), k[None, :] + tl.zeros_like(state), state)
        left(state, states, stride, at, inside, first + i, into)
        y = tl.sum(state * q[None, :], 1)
        tl.store(out, y.to(out.dtype.element_ty), mask=has_value)
        out += heads * width
    for _ in range(real, tokens):
        tl.store(out, tl.zeros([block], out.dtype.element_ty), mask=has_value)
        out += heads * width


def delta_net(
    mixed: Tensor, ba: Tensor, decay: Tensor, shift: Tensor, rows: Rows, states: Tensor, key_heads: int
) -> Tensor:
    """What every token reads from the matrix of each head [n, heads · value].

    `mixed` [n, 2 · key_heads · key + heads · value] are queries, keys and values, `ba` [n, 2 · heads] what β and the
    decay are made of; `decay` and `shift` [heads], `states` [numbers, heads, value, key] are float32. With q and k of
    length 1, β = sigmoid(b) and g = decay·softplus(a + shift):
    S_t = exp(g)·S + u ⊗ k with u = β·(v − exp(g)·S·k), and y = S_t·q / √key.
    Tokens of a row follow each other in one order of sums, so bits depend on no batch, tree or chunk.
    Cost: one launch; a row's tokens one after the other, its heads and their values side by side.
    """
    n, (_, heads, width, keys) = len(mixed), states.shape
    assert rows.before is not None
    assert mixed.stride(1) == ba.stride(1) == 1
    out = torch.empty(n, heads * width, dtype=mixed.dtype, device=mixed.device)
    chain, block = chained(), min(VALUES, triton.next_power_of_2(width))
    _delta[(rows.number, heads, triton.cdiv(width, block))](
        mixed, ba, decay, shift, rows.before, rows.into, rows.count, states, out, rows.tokens,
        mixed.stride(0), ba.stride(0), heads, keys**-0.5,
        group=heads // key_heads, keys=keys, width=width, all_keys=key_heads * keys,
        lanes=triton.next_power_of_2(keys), block=block, num_warps=WARPS, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out


def reference(
    mixed: Tensor, ba: Tensor, decay: Tensor, shift: Tensor, rows: Rows, states: Tensor, key_heads: int
) -> Tensor:
    """The same, token by token, in float32; states are written too."""
    _, heads, width, keys = states.shape
    out = torch.zeros(len(mixed), heads, width)

    def passed(token: int, state: Tensor) -> Tensor:
        q, k, v = torch.split(mixed[token].float(), [key_heads * keys, key_heads * keys, heads * width])
        q, k = (part.view(key_heads, keys).repeat_interleave(heads // key_heads, 0) for part in (q, k))
        q, k = (part * torch.rsqrt((part * part).sum(-1, keepdim=True) + 1e-6) for part in (q, k))
        b, a = ba[token].float().chunk(2)
        state = state * (decay * F.softplus(a + shift)).exp()[:, None, None]
        u = (v.view(heads, width) - (state * k[:, None]).sum(-1)) * b.sigmoid()[:, None]
        state = state + u[:, :, None] * k[:, None]
        out[token] = (state * q[:, None]).sum(-1) * keys**-0.5
        return state

    walked(rows, states, passed)
    return out.view(len(mixed), -1).to(mixed.dtype)
