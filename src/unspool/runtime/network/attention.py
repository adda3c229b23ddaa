"""Attention over slots: which keys each row of a batch reads, worked out once per forward and used by every layer.

Queries and keys are turned before, by an angle that grows with the token's place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...models.layer_shape import AttentionSpec
from ..cache.kv_pool import KVPool, Where
from .linear import Linear, rms
from .network import Row

BLOCK = 256  # queries that share a mask: bounds the memory that masks take in a long prefill
FOLD = 8  # queries up to which the heads that share keys are folded into one, so that keys are read once for them all
FIRST_ROWS = 2048
PLANLESS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@contextmanager
def without_plans() -> Iterator[None]:
    """Have PyTorch attend by kernels that need no plan for every new number of keys, while this lasts.

    cuDNN's take tens of milliseconds to make one on a GPU, and a text that grows has another number in every round.
    """
    with sdpa_kernel(PLANLESS):
        yield


@dataclass(frozen=True)
class QuerySpan:
    """Neighbouring queries of one row and the keys they read.

    `mask` is added to the scores; without one every query sees every key, or, if `causal`, the keys up to its own.
    A mask of at most FOLD queries has a line for each query and head of a group.
    """

    first: int
    count: int
    keys: Where
    mask: Tensor | None = None
    causal: bool = False


class SlidingWindow(NamedTuple):
    """What a layer sees that does not see all: the last `window` tokens, or those of the token's chunk of so many."""

    window: int
    chunked: bool = False

    def first(self, place: int) -> int:
        """The first place that a token at `place` sees."""
        return place - place % self.window if self.chunked else place - self.window + 1


@dataclass(frozen=True)
class Planner:
    """What the plan of a forward's attention depends on beside its rows."""

    alone: ClassVar = False  # whether every token is computed by itself

    slots: KVPool
    group: int  # query heads per key head
    dtype: torch.dtype
    device: torch.device

    def plan(self, rows: Sequence[Row], window: int | None, chunked: bool = False) -> list[QuerySpan]:
        """Plan the attention of all rows in layers that see `window` tokens, or their own chunk of them (None: all)."""
        sliding = None if window is None else SlidingWindow(window, chunked)
        return [span for row in rows for span in self._row(row, sliding)]

    def _row(self, row: Row, sliding: SlidingWindow | None) -> Iterator[QuerySpan]:
        past = len(row.slots) - row.count
        if sliding is not None and sliding.first(max(row.places[past:])) <= row.places[0]:
            sliding = None  # the text is shorter than what the layer sees
        if row.hidden_from is None and sliding is None:
            if row.count == 1:
                yield QuerySpan(row.first, 1, self.slots.where(row.slots, self.device))
                return
            if past == 0 and row.count > FOLD:
                yield QuerySpan(row.first, row.count, self.slots.where(row.slots, self.device), causal=True)
                return
        for start in range(0, row.count, BLOCK):
            yield self._block(row, sliding, start, min(start + BLOCK, row.count))

    def _block(self, row: Row, sliding: SlidingWindow | None, start: int, end: int) -> QuerySpan:
        """Plan queries start..end of a row, leaving out the keys at both ends that none of them sees."""
        past = len(row.slots) - row.count
        asking = row.places[past + start : past + end]
        # Drafted siblings make the places of the new tokens go up and down; those of older ones go up.
        sorted_to = past + start if row.hidden_from is None else past
        low = 0 if sliding is None else bisect_left(row.places, sliding.first(min(asking)), 0, sorted_to)
        high = past + end if row.hidden_from is None else len(row.places)
        if row.hidden_from is None:
            own = torch.arange(past + start, past + end, device=self.device)
            hidden = torch.arange(low, high, device=self.device) > own[:, None]
        else:
            hidden = row.hidden_from[start:end, low:high].to(self.device)
        if sliding is not None:
            asked = torch.tensor(row.places[low:high], device=self.device)
            first = torch.tensor([sliding.first(place) for place in asking], device=self.device)
            hidden = hidden | (asked < first[:, None])
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, float("-inf"))
        if end - start <= FOLD:
            mask = mask.repeat_interleave(self.group, 0)
        return QuerySpan(row.first + start, end - start, self.slots.where(row.slots[low:high], self.device), mask)


def attend(
    queries: Tensor,
    layer: int,
    plan: Sequence[QuerySpan],
    slots: KVPool,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return what each query [n, heads, width] gathers from its keys: [n, heads * width]."""

    def gather(queries: Tensor, span: QuerySpan) -> Tensor:
        keys, values = slots.read(layer, span.keys)
        if softcap is None and sinks is None:
            return gathered(queries, keys, values, span, scale)
        return _scored(queries, keys, values, span, scale, softcap, sinks)

    if len(plan) == 1:
        return gather(queries, plan[0])
    return torch.cat([gather(queries[span.first : span.first + span.count], span) for span in plan])


def _scored(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    span: QuerySpan,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """The same with scores that a fused kernel has no place for: capped, or beside a sink's [heads]."""
    (count, heads, width), shared = queries.shape, keys.shape[0]
    group = heads // shared
    folded = queries.view(count, shared, group, width).permute(1, 0, 2, 3).reshape(shared, count * group, width)
    scores = (folded @ keys.mT).mul_(scale).view(shared, count, group, -1)
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    if span.causal:
        past = torch.ones(scores.shape[1], scores.shape[3], dtype=torch.bool, device=scores.device).triu_(1)
        scores = scores.masked_fill_(past[:, None], float("-inf"))
    elif span.mask is not None:
        scores = scores + (span.mask.view(count, group, -1) if count <= FOLD else span.mask[:, None])
    if sinks is not None:
        sink = sinks.to(scores.dtype).view(shared, 1, group, 1).expand(-1, count, -1, -1)
        scores = torch.cat((scores, sink), -1)
    wide = torch.promote_types(scores.dtype, torch.float32)
    p = scores.to(wide).softmax(-1).to(values.dtype)[..., : keys.shape[1]]
    seen = p.reshape(shared, count * group, -1) @ values
    return seen.view(shared, count, group, width).permute(1, 0, 2, 3).reshape(count, heads * width)


def gathered(queries: Tensor, keys: Tensor, values: Tensor, span: QuerySpan, scale: float) -> Tensor:
    """What the queries of a span gather from these keys and values [kv_heads, m, …]: [n, heads * width of a value]."""
    (count, heads, width), out = queries.shape, values.shape[-1]
    keys, values = keys[None], values[None]
    if count > FOLD:
        seen = F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            keys,
            values,
            attn_mask=span.mask,
            is_causal=span.causal,
            scale=scale,
            enable_gqa=heads != keys.shape[1],
        )
        return seen[0].transpose(0, 1).reshape(count, heads * out)
    shared = keys.shape[1]
    group = heads // shared
    if count == 1:
        folded = queries.view(1, shared, group, width)
        seen = F.scaled_dot_product_attention(folded, keys, values, attn_mask=span.mask, scale=scale)
        return seen.reshape(1, heads * out)
    folded = queries.view(count, shared, group, width).transpose(0, 1).reshape(1, shared, count * group, width)
    seen = F.scaled_dot_product_attention(folded, keys, values, attn_mask=span.mask, scale=scale)
    return seen.view(shared, count, group, out).transpose(0, 1).reshape(count, heads * out)


Turns = tuple[Tensor, Tensor]
"""cos and sin [n, 1, rotary]."""


class Rotary:
    """cos and sin for every place, kept in a table that grows when a text does.

    Angles are float32 whatever the network's type, as transformers has them: a float64 network is then the same
    function as the float32 one. The first half of the sines is negated, so that one product adds both halves.
    """

    def __init__(self, frequencies: Tensor, scale: float, dtype: torch.dtype) -> None:
        self._frequencies = frequencies.float()
        self._scale = scale
        self._dtype = dtype
        self._cos, self._sin = self._rows(FIRST_ROWS)

    def at(self, places: Tensor, furthest: int) -> tuple[Tensor, Tensor]:
        """Return cos and sin [n, 1, rotary] for these places, of which `furthest` is the largest."""
        if furthest >= self._cos.shape[0]:
            self._cos, self._sin = self._rows(max(furthest + 1, 2 * self._cos.shape[0]))
        return self._cos[places].unsqueeze(1), self._sin[places].unsqueeze(1)

    def table(self, count: int) -> tuple[Tensor, Tensor]:
        """Return cos and sin [count, rotary / 2] in float32, neither doubled nor negated: kernels do both."""
        angles = torch.arange(count, device=self._frequencies.device, dtype=torch.float32)[:, None] * self._frequencies
        return angles.cos() * self._scale, angles.sin() * self._scale

    def _rows(self, count: int) -> tuple[Tensor, Tensor]:
        places = torch.arange(count, device=self._frequencies.device, dtype=torch.float32)
        angles = places[:, None] * self._frequencies
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        return torch.cat((cos, cos), -1).to(self._dtype), torch.cat((-sin, sin), -1).to(self._dtype)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + width/2}) of the first `width` numbers of x [n, heads, head_dim], as cos has them."""
    width = cos.shape[-1]
    half, turned = width // 2, x[..., :width]
    swapped = torch.cat((turned[..., half:], turned[..., :half]), -1)
    turned = torch.addcmul(turned * cos, swapped, sin)
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)


@dataclass(frozen=True)
class Attention:
    """The weights of one layer's attention; the matrix of queries (and gates), keys and values is one."""

    spec: AttentionSpec
    qkv: Linear
    out: Linear
    qk_norm: Tensor | None = None  # [heads + kv_heads, head_dim]
    all_norms: tuple[Tensor, ...] = ()  # of all queries and all keys as one vector each
    sinks: Tensor | None = None  # [heads]


class Projected(NamedTuple):
    """Queries [n, heads, head_dim], keys and values [n, kv_heads, head_dim], and gates [n, heads * head_dim].

    A layer that reads the keys of another has none of its own: they are empty then.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    gate: Tensor | None


def projected(mixer: Attention, x: Tensor, turns: Turns | None, places: Tensor | None, eps: float) -> Projected:
    """Project tokens that have been normed [n, dim]; `places` are asked for where queries grow with theirs."""
    return parted(mixer, mixer.qkv(x), turns, places, eps)


def parted(mixer: Attention, qkv: Tensor, turns: Turns | None, places: Tensor | None, eps: float) -> Projected:
    """The same of tokens that have been projected [n, (heads + 2 · kv_heads) · head_dim]."""
    spec, heads, gate = mixer.spec, mixer.spec.heads, None
    qkv = qkv.reshape(qkv.shape[0], -1, spec.head_dim)
    if spec.gated:
        both = qkv[:, : 2 * heads].reshape(len(qkv), heads, 2, -1)
        qkv, gate = torch.cat((both[:, :, 0], qkv[:, 2 * heads :]), 1), both[:, :, 1].flatten(1)
    turned = heads + (spec.kv_heads if spec.keys_of is None else 0)
    qk, values = qkv[:, :turned], qkv[:, heads:turned] if spec.values_are_keys else qkv[:, turned:]
    if mixer.qk_norm is not None:
        qk = rms(qk, mixer.qk_norm, eps)
    elif mixer.all_norms:
        parts = qk[:, :heads].flatten(1), qk[:, heads:].flatten(1)
        normed = [rms(part, weight, eps) for part, weight in zip(parts, mixer.all_norms, strict=True)]
        qk = torch.cat(normed, 1).view_as(qk)
    if turns is not None:
        qk = turn(qk, *turns)
    if spec.qk_norm == "unit":
        qk = F.rms_norm(qk, (spec.head_dim,), None, eps)
    if spec.value_norm:
        values = F.rms_norm(values, (spec.head_dim,), None, eps)
    queries = qk[:, :heads]
    if spec.tempered is not None:
        assert places is not None
        queries = queries * _grown(places, *spec.tempered).to(queries.dtype)
    return Projected(queries, qk[:, heads:], values, gate)


def _grown(places: Tensor, by: float, every: int, offset: int) -> Tensor:
    """1 + b·log(1 + ⌊(p + o)/n⌋) for each place [n, 1, 1]."""
    return (1 + by * torch.log1p(((places + offset) // every).float()))[:, None, None]
