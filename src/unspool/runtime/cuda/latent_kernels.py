"""Latent attention inside CUDA graphs: the matrices of heads as groups of one product, latents gathered as keys."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...kernels.grouped import grouped
from ...kernels.norm import rms
from ..network.attention import Turns, turn
from ..network.latent_attention import LatentAttention
from ..network.linear import Linear

LATENT_GROUP = 16  # heads that a program gathers latents for


def latent_parts(
    mixer: LatentAttention, x: Tensor, turns: Turns, product: Callable[[Linear, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Queries [n, heads, rank + rotary] of normed tokens [n, dim], and what each leaves in its slot [n, rank + rotary].

    Heads are filled up to whole groups, where they are several.
    """
    spec, n = mixer.spec, len(x)
    latent, key = torch.split(product(mixer.latent, x), [spec.rank, spec.rope.width], -1)
    latent = rms(latent.contiguous(), mixer.latent_norm, spec.norm_eps)
    stored = torch.cat((latent, turn(key[:, None], *turns)[:, 0]), -1)
    if mixer.reduce is not None and mixer.reduce_norm is not None:
        x = rms(product(mixer.reduce, x).contiguous(), mixer.reduce_norm, spec.norm_eps)
    queries = product(mixer.queries, x).reshape(n, spec.heads, -1)
    plain, last = queries[..., : spec.plain], turn(queries[..., spec.plain :], *turns)
    inward = per_head(plain, mixer.keys.mT)
    whole = torch.cat((inward, last), -1)
    if spec.heads > LATENT_GROUP and spec.heads % LATENT_GROUP:
        whole = torch.nn.functional.pad(whole, (0, 0, 0, -spec.heads % LATENT_GROUP))
    return whole, stored


def latent_values(mixer: LatentAttention, seen: Tensor) -> Tensor:
    """What heads make of the latents that they have gathered [n, heads · (rank + rotary)]: [n, heads · value]."""
    spec, n = mixer.spec, len(seen)
    latents = seen.view(n, -1, spec.cached)[:, : spec.heads, : spec.rank]
    return per_head(latents, mixer.values.mT).flatten(1)


def per_head(x: Tensor, weight: Tensor) -> Tensor:
    """x [n, heads, in] times the matrix of each head, weight [heads, out, in]: [n, heads, out].

    A token's bits do not depend on how many tokens there are.
    """
    n, heads, _ = x.shape
    ends = torch.arange(n, n * heads + 1, n, dtype=torch.int32, device=x.device)
    order = torch.arange(n * heads, dtype=torch.int32, device=x.device)
    rows = x.transpose(0, 1).reshape(n * heads, -1).contiguous()  # of one token they would be a view with gaps
    found = grouped(rows, weight.contiguous(), None, ends, order, steady=True)
    return found.view(heads, n, -1).transpose(0, 1)
