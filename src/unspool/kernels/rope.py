"""Queries and keys on their way into attention: normed per head, turned by place; keys and values put in slots."""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait


class RopeTurn(NamedTuple):
    """Where heads of tokens stand and go: tables of turns, places, slots, and the pools of keys and values."""

    cos: Tensor
    sin: Tensor
    places: Tensor
    slots: Tensor
    keys: Tensor
    values: Tensor


@triton.jit
def sides(pair, width: tl.constexpr, pairs: tl.constexpr):
    """Where the numbers of a pair stand in a head: what does not turn stands behind all that does."""
    return tl.where(pair < pairs, pair, pair + pairs), tl.where(pair < pairs, pair + pairs, pair + width // 2)


@triton.jit
def turned(x, y, c, s, kind: tl.constexpr):
    """As `network.attention.turn` has it: the first product is rounded, the second is added to it unrounded."""
    c, s = c.to(kind).to(tl.float32) + tl.zeros_like(x), s.to(kind).to(tl.float32) + tl.zeros_like(x)
    p = tl.fma(-y, s, (x * c).to(kind).to(tl.float32)).to(kind)
    return p, tl.fma(x, s, (y * c).to(kind).to(tl.float32)).to(kind)


@triton.jit
def put(
    queries, keys, values, p, q, a, b, head, left, right, token, slot, kv_stride, inside,
    heads: tl.constexpr, kv_heads: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Store turned pairs p, q as queries, or as keys in their slots; and pairs as they were as values."""
    asking, asked = inside & (head < heads), inside & (head >= heads) & (head < heads + kv_heads)
    into = queries + token.to(tl.int64) * (heads * width) + head * width
    tl.store(into + left, p, mask=asking)
    tl.store(into + right, q, mask=asking)
    into = keys + (head - heads).to(tl.int64) * kv_stride + slot
    tl.store(into + left, p, mask=asked)
    tl.store(into + right, q, mask=asked)
    given = inside & (head >= heads + kv_heads)
    into = values + (head - heads - kv_heads).to(tl.int64) * kv_stride + slot
    tl.store(into + left, a, mask=given)
    tl.store(into + right, b, mask=given)


@triton.jit
def _rope(
    qkv, norm, cos, sin, places, slots, queries, keys, values,
    eps, qkv_stride, kv_stride, slot_stride,
    heads: tl.constexpr, kv_heads: tl.constexpr, width: tl.constexpr, half: tl.constexpr, pairs: tl.constexpr,
    block: tl.constexpr, normed: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    token = tl.program_id(0)
    head = tl.program_id(1) * block + tl.arange(0, block)
    pair = tl.arange(0, half)
    column, turns = pair < width // 2, pair < pairs
    left, right = sides(pair, width, pairs)
    inside = (head < heads + 2 * kv_heads)[:, None] & column[None, :]
    source = qkv + token.to(tl.int64) * qkv_stride + head[:, None] * width
    a = tl.load(source + left[None, :], mask=inside, other=0.0)
    b = tl.load(source + right[None, :], mask=inside, other=0.0)
    kind = a.dtype
    x, y = a.to(tl.float32), b.to(tl.float32)
    if normed:
        # As `rms` has it: the quotient and the product are each rounded to the type of the factors.
        factor = norm + head[:, None] * width
        wanted = (head < heads + kv_heads)[:, None] & column[None, :]
        u = tl.load(factor + left[None, :], mask=wanted, other=1.0)
        v = tl.load(factor + right[None, :], mask=wanted, other=1.0)
        size = tl.rsqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / width + eps)
        x = (x * size[:, None]).to(u.dtype).to(tl.float32) * u.to(tl.float32)
        y = (y * size[:, None]).to(u.dtype).to(tl.float32) * v.to(tl.float32)
        x, y = x.to(u.dtype).to(kind).to(tl.float32), y.to(u.dtype).to(kind).to(tl.float32)
    place = tl.load(places + token)
    c = tl.load(cos + place.to(tl.int64) * pairs + pair, mask=turns, other=1.0)
    s = tl.load(sin + place.to(tl.int64) * pairs + pair, mask=turns, other=0.0)
    slot = tl.load(slots + token).to(tl.int64) * slot_stride
    p, q = turned(x, y, c[None, :], s[None, :], kind)
    put(
        queries, keys, values, p, q, a, b, head[:, None], left[None, :], right[None, :], token, slot, kv_stride,
        inside, heads, kv_heads, width,
    )  # fmt: skip


def rope(
    qkv: Tensor,
    norm: Tensor | None,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    places: Tensor,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    block: int | None = None,
) -> Tensor:
    """Return turned queries [n, heads, width] of qkv [n, (heads + 2·kv_heads)·width]; store keys and values in slots.

    `norm` [heads + kv_heads, width] norms each head first. cos and sin [places, pairs] are float32 and rounded to
    qkv's type; numbers i and i + pairs of a head turn, and those from 2·pairs on do not. `keys` and `values` are pools
    [kv_heads, slots, width] of the same strides. Padding goes to its slot.
    `block` is how many heads a program takes where it norms them, which may show in the last bit; else that goes by the
    number of tokens.
    Cost: one launch; reads and writes everything once.
    """
    n, (kv_heads, _, width) = qkv.shape[0], keys.shape
    together = qkv.shape[1] // width
    heads = together - 2 * kv_heads
    queries = torch.empty(n, heads, width, dtype=qkv.dtype, device=qkv.device)
    if block is None or norm is None:
        block = 4 if n <= 128 else 16
    chain = chained()
    _rope[(n, triton.cdiv(together, block))](
        qkv, cos if norm is None else norm, cos, sin, places, slots, queries, keys, values,
        eps, qkv.stride(0), keys.stride(0), keys.stride(1),
        heads=heads, kv_heads=kv_heads, width=width, half=triton.next_power_of_2(width // 2),
        pairs=cos.shape[1], block=block, normed=norm is not None, num_warps=1 if block <= 4 else 4,
        chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return queries


def reference(
    qkv: Tensor,
    norm: Tensor | None,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    places: Tensor,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """The same, by the runtime's steps."""
    n, (kv_heads, _, width) = qkv.shape[0], keys.shape
    parts = qkv.view(n, -1, width)
    turned = parts.shape[1] - kv_heads
    qk = parts[:, :turned]
    if norm is not None:
        qk = (F.rms_norm(qk.to(norm.dtype), norm.shape[-1:], None, eps) * norm).to(qk.dtype)
    c, s = (table[places][:, None].to(qk.dtype) for table in (cos, sin))
    pairs = cos.shape[1]
    swapped = torch.cat((qk[..., pairs : 2 * pairs], qk[..., :pairs]), -1)
    both = torch.addcmul(qk[..., : 2 * pairs] * torch.cat((c, c), -1), swapped, torch.cat((-s, s), -1))
    qk = torch.cat((both, qk[..., 2 * pairs :]), -1)
    heads = turned - kv_heads
    keys[:, slots] = qk[:, heads:].transpose(0, 1)
    values[:, slots] = parts[:, turned:].transpose(0, 1)
    return qk[:, :heads].contiguous()
