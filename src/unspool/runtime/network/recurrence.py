"""Linear recurrences over tokens, as attention without a softmax: one matrix per head instead of keys and values.

S_t = exp(g_t)·S_{t−1} + k_t ⊗ u_t,  y_t = qᵀ_t·S_t, with u_t = v_t (Mamba-2, 2405.21060), or by the delta rule
u_t = β_t·(v_t − exp(g_t)·kᵀ_t·S_{t−1}) (gated delta net, 2412.06464).
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64  # tokens whose outputs are made by products of matrices


def scan(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """Go on from states [runs, heads, key, value] with tokens [runs, n, heads, …]; outputs, and the states after them.

    `g` ≤ 0 and `beta` are [runs, n, heads]. A token whose k and g are 0 leaves the state as it is.
    Cost: n products of a matrix with a vector per head, or for many tokens, those of n / CHUNK triangles of CHUNK².
    """
    if q.shape[1] == 1:
        y, state = _step(q[:, 0], k[:, 0], v[:, 0], g[:, 0], None if beta is None else beta[:, 0], state)
        return y[:, None], state
    parts = list[Tensor]()
    for at in range(0, q.shape[1], CHUNK):
        piece = slice(at, at + CHUNK)
        of = [x[:, piece].transpose(1, 2) for x in (q, k, v)]
        b = None if beta is None else beta[:, piece].transpose(1, 2)
        y, state = _chunk(of[0], of[1], of[2], g[:, piece].transpose(1, 2), b, state)
        parts.append(y.transpose(1, 2))
    return torch.cat(parts, 1), state


def _step(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """One token of every run: q, k [runs, heads, key], v [runs, heads, value], g and beta [runs, heads]."""
    state = state * g.exp()[..., None, None]
    if beta is not None:
        v = (v - (state * k[..., None]).sum(-2)) * beta[..., None]
    state = torch.addcmul(state, k[..., None], v[..., None, :])
    return (state * q[..., None]).sum(-2), state


def _chunk(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """Some tokens at once: q, k [runs, heads, n, key], v [runs, heads, n, value], g and beta [runs, heads, n].

    With G_t = g_1 + … + g_t and D_ts = exp(G_t − G_s) for s ≤ t: y_t = exp(G_t)·qᵀ_t·S_0 + Σ_s D_ts·(q_t·k_s)·u_s.
    By the delta rule, u solves u_t + β_t·Σ_{s<t} D_ts·(k_t·k_s)·u_s = β_t·(v_t − exp(G_t)·kᵀ_t·S_0).
    """
    total = g.cumsum(-1)
    later = torch.ones(g.shape[-1], g.shape[-1], dtype=torch.bool, device=g.device).triu(1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(later, float("-inf")).exp()
    grown = total.exp()[..., None]
    if beta is not None:
        within = beta[..., None] * (k @ k.mT) * decay
        wanted = beta[..., None] * (v - grown * (k @ state))
        v = torch.linalg.solve_triangular(within, wanted, upper=False, unitriangular=True)
    y = grown * (q @ state) + ((q @ k.mT) * decay) @ v
    left = (total[..., -1:] - total).exp()[..., None]
    return y, state * grown[..., -1:, :] + (k * left).mT @ v


def unit(x: Tensor) -> Tensor:
    """x / |x| along the last dimension, with a floor under the length."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)
