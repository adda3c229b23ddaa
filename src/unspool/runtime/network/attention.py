"""Attention over slots: which keys each row of a batch reads, worked out once per forward and used by every layer.

Queries and keys are turned before, by an angle that grows with the token's place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ..cache.kv_pool import KVPool, Where
from .network import Row

BLOCK = 256  # queries that share a mask: bounds the memory that masks take in a long prefill
FOLD = 8  # queries up to which the heads that share keys are folded into one, so that keys are read once for them all
FIRST_ROWS = 2048


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


@dataclass(frozen=True)
class Planner:
    """What the plan of a forward's attention depends on beside its rows."""

    slots: KVPool
    group: int  # query heads per key head
    dtype: torch.dtype
    device: torch.device

    def plan(self, rows: Sequence[Row], window: int | None) -> list[QuerySpan]:
        """Plan the attention of all rows in layers that see `window` tokens (None: all)."""
        return [span for row in rows for span in self._row(row, window)]

    def _row(self, row: Row, window: int | None) -> Iterator[QuerySpan]:
        past = len(row.slots) - row.count
        if window is not None and max(row.places[past:]) - row.places[0] < window:
            window = None  # the text is shorter than what the layer sees
        if row.hidden_from is None and window is None:
            if row.count == 1:
                yield QuerySpan(row.first, 1, self.slots.where(row.slots, self.device))
                return
            if past == 0 and row.count > FOLD:
                yield QuerySpan(row.first, row.count, self.slots.where(row.slots, self.device), causal=True)
                return
        for start in range(0, row.count, BLOCK):
            yield self._block(row, window, start, min(start + BLOCK, row.count))

    def _block(self, row: Row, window: int | None, start: int, end: int) -> QuerySpan:
        """Plan queries start..end of a row, leaving out the keys at both ends that none of them sees."""
        past = len(row.slots) - row.count
        asking = row.places[past + start : past + end]
        # Drafted siblings make the places of the new tokens go up and down; those of older ones go up.
        sorted_to = past + start if row.hidden_from is None else past
        low = 0 if window is None else bisect_left(row.places, min(asking) - window + 1, 0, sorted_to)
        high = past + end if row.hidden_from is None else len(row.places)
        if row.hidden_from is None:
            own = torch.arange(past + start, past + end, device=self.device)
            hidden = torch.arange(low, high, device=self.device) > own[:, None]
        else:
            hidden = row.hidden_from[start:end, low:high].to(self.device)
        if window is not None:
            asked = torch.tensor(row.places[low:high], device=self.device)
            hidden = hidden | (torch.tensor(asking, device=self.device)[:, None] - asked >= window)
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, float("-inf"))
        if end - start <= FOLD:
            mask = mask.repeat_interleave(self.group, 0)
        return QuerySpan(row.first + start, end - start, self.slots.where(row.slots[low:high], self.device), mask)


def attend(queries: Tensor, layer: int, plan: Sequence[QuerySpan], slots: KVPool, scale: float) -> Tensor:
    """Return what each query [n, heads, width] gathers from its keys: [n, heads * width]."""
    if len(plan) == 1:
        return _gather(queries, *slots.read(layer, plan[0].keys), plan[0], scale)
    parts = (
        _gather(queries[span.first : span.first + span.count], *slots.read(layer, span.keys), span, scale)
        for span in plan
    )
    return torch.cat(list(parts))


def _gather(queries: Tensor, keys: Tensor, values: Tensor, span: QuerySpan, scale: float) -> Tensor:
    count, heads, width = queries.shape
    keys, values = keys[None], values[None]
    if count > FOLD:
        gathered = F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            keys,
            values,
            attn_mask=span.mask,
            is_causal=span.causal,
            scale=scale,
            enable_gqa=heads != keys.shape[1],
        )
        return gathered[0].transpose(0, 1).reshape(count, heads * width)
    shared = keys.shape[1]
    group = heads // shared
    if count == 1:
        folded = queries.view(1, shared, group, width)
        gathered = F.scaled_dot_product_attention(folded, keys, values, attn_mask=span.mask, scale=scale)
        return gathered.reshape(1, heads * width)
    folded = queries.view(count, shared, group, width).transpose(0, 1).reshape(1, shared, count * group, width)
    gathered = F.scaled_dot_product_attention(folded, keys, values, attn_mask=span.mask, scale=scale)
    return gathered.view(shared, count, group, width).transpose(0, 1).reshape(count, heads * width)


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
