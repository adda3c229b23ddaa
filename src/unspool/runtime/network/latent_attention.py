"""Latent attention (MLA, 2405.04434): a token leaves one small vector and one key for all heads in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...models.mixer_shape import LatentSpec
from ..cache.kv_pool import KVPool, Where
from .attention import QuerySpan, Turns, gathered, turn
from .linear import Linear, rms


@dataclass(frozen=True)
class LatentAttention:
    """The weights of one layer's latent attention; each head's own matrices are applied to queries and outputs.

    With the latent c_s and the turned key r_s of token s, a head's key is (K·c_s, r_s) and its value V·c_s. So
    q·k_s = (Kᵀ·q)·c_s + q′·r_s, and Σ p_s·V·c_s = V·Σ p_s·c_s: attention gathers latents, and nothing is expanded.
    Cost: a token leaves rank + rotary numbers in the cache, however many heads there are.
    """

    spec: LatentSpec
    reduce: Linear | None  # to what the queries are made of
    reduce_norm: Tensor | None
    queries: Linear
    latent: Linear  # the latent, and the key that turns
    latent_norm: Tensor
    keys: Tensor  # K [heads, plain, rank]
    values: Tensor  # Vᵀ [heads, rank, value]
    out: Linear

    def __call__(
        self, x: Tensor, layer: int, turns: Turns, into: Where, plan: Sequence[QuerySpan], slots: KVPool
    ) -> Tensor:
        """Store the latents of normed tokens [n, dim], and return what each gathers [n, heads · value]."""
        spec, n = self.spec, len(x)
        latent, key = torch.split(self.latent(x), [spec.rank, spec.rope.width], -1)
        latent = rms(latent.contiguous(), self.latent_norm, spec.norm_eps)
        stored = torch.cat((latent, turn(key[:, None], *turns)[:, 0]), -1)[None]
        slots.write(layer, into, stored, stored[..., :0])
        if self.reduce is not None and self.reduce_norm is not None:
            x = rms(self.reduce(x).contiguous(), self.reduce_norm, spec.norm_eps)
        queries = self.queries(x).reshape(n, spec.heads, -1)
        plain, turned = queries[..., : spec.plain], turn(queries[..., spec.plain :], *turns)
        parts = [
            self._gathered(plain[at], turned[at], slots.read(layer, span.keys)[0], span)
            for span in plan
            for at in [slice(span.first, span.first + span.count)]
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _gathered(self, plain: Tensor, turned: Tensor, stored: Tensor, span: QuerySpan) -> Tensor:
        spec, n = self.spec, len(plain)
        inward = torch.bmm(plain.transpose(0, 1), self.keys).transpose(0, 1)
        seen = gathered(torch.cat((inward, turned), -1), stored, stored[..., : spec.rank], span, spec.scale)
        outward = torch.bmm(seen.view(n, spec.heads, spec.rank).transpose(0, 1), self.values)
        return outward.transpose(0, 1).reshape(n, -1)
