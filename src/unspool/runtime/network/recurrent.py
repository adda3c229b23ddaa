"""Layers that carry a state from token to token in place of attention: short convolutions, delta nets, Mamba-2.

Each takes normed tokens [n, dim] of a batch and returns what its output matrix is applied to. What a token leaves to
those that follow it is written behind the tokens that the plan keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from .linear import Linear
from .recurrence import scan, unit
from .recurrent_plan import RecurrentPlan, Runs


@dataclass(frozen=True)
class ShortConvolution:
    """y_t = Σ_j w_j·x_{t−j} + b over the last few tokens, each number of x by itself: what precedes is the state."""

    weight: Tensor  # [width, size], the token's own factor last
    bias: Tensor | None = None

    def __call__(self, x: Tensor, layer: int, plan: RecurrentPlan) -> Tensor:
        size, part, checkpoints = self.weight.shape[1], (layer, "inputs"), plan.checkpoints
        starts, rows = plan.windows(size)
        checkpoints.lay_out(part, (size - 1, x.shape[1]), x.dtype, x.device)
        inputs = torch.cat((checkpoints.read(part, starts).flatten(0, 1), x))
        checkpoints.write(part, plan.ends, inputs[rows[plan.kept, 1:]])
        y = inputs[rows[:, 0]] * self.weight[:, 0]
        for j in range(1, size):
            y = torch.addcmul(y, inputs[rows[:, j]], self.weight[:, j])
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True)
class GatedConvolution:
    """C·conv(B·x), with B, C and x from one matrix: the short convolution of LFM2."""

    bcx: Linear
    conv: ShortConvolution
    out: Linear

    def __call__(self, x: Tensor, layer: int, plan: RecurrentPlan) -> Tensor:
        b, c, x = self.bcx(x).chunk(3, -1)
        return c * self.conv(b * x, layer, plan)


@dataclass(frozen=True)
class GatedDeltaNet:
    """Linear attention by the delta rule with a decay (2412.06464), as Qwen3-Next has it.

    q, k, v = SiLU(conv(·)); q and k of length 1, β = sigmoid(b), g = −exp(A)·softplus(a + dt); y = norm(scan)·SiLU(z).
    Cost: the state of a token is value heads · key width · value width numbers, whatever the length of the text.
    """

    qkvz: Linear
    ba: Linear
    conv: ShortConvolution
    out: Linear
    decay: Tensor  # −exp(A) [value heads]
    shift: Tensor  # dt [value heads]
    norm: Tensor  # [value width]
    eps: float
    key_heads: int
    key_dim: int

    def __call__(self, x: Tensor, layer: int, plan: RecurrentPlan) -> Tensor:
        n, heads, width = len(x), len(self.decay), len(self.norm)
        keys = self.key_heads * self.key_dim
        qkv, z = torch.split(self.qkvz(x), [2 * keys + heads * width, heads * width], -1)
        b, a = self.ba(x).to(self.decay.dtype).chunk(2, -1)
        mixed = F.silu(self.conv(qkv, layer, plan)).to(self.decay.dtype)
        q, k, v = torch.split(mixed, [keys, keys, heads * width], -1)
        q, k = (unit(part.reshape(n, self.key_heads, -1)) for part in (q, k))
        group = heads // self.key_heads
        q, k = ((q * self.key_dim**-0.5).repeat_interleave(group, 1), k.repeat_interleave(group, 1))
        g = self.decay * F.softplus(a + self.shift)
        y = scanned(q, k, v.reshape(n, heads, width), g, b.sigmoid(), layer, plan).to(x.dtype)
        y = F.rms_norm(y, (width,), None, self.eps) * self.norm
        return (y * F.silu(z.reshape(n, heads, width).to(self.decay.dtype))).to(x.dtype).view(n, -1)


@dataclass(frozen=True)
class Mamba2:
    """A state space with one decay per head and token (2405.21060), as Granite 4 and Nemotron-H have it.

    x, B, C = SiLU(conv(·)), Δ = softplus(dt + shift) within `limits`; S_t = exp(Δ·A)·S_{t−1} + B ⊗ Δx,
    y = norm((Cᵀ·S + D·x)·SiLU(z)), the norm over each of `norm_groups` parts.
    """

    projection: Linear  # z, x, B, C and dt
    conv: ShortConvolution
    out: Linear
    decay: Tensor  # A < 0 [heads]
    shift: Tensor  # [heads]
    skip: Tensor  # D [heads]
    norm: Tensor  # [heads · width]
    eps: float
    groups: int  # of heads that share B and C
    state: int
    limits: tuple[float, float]
    norm_groups: int = 1

    def __call__(self, x: Tensor, layer: int, plan: RecurrentPlan) -> Tensor:
        n, heads, wide = len(x), len(self.decay), self.decay.dtype
        inner, shared = len(self.norm), self.groups * self.state
        z, mixed, dt = torch.split(self.projection(x), [inner, inner + 2 * shared, heads], -1)
        mixed = F.silu(self.conv(mixed, layer, plan)).to(wide)
        own, b, c = torch.split(mixed, [inner, shared, shared], -1)
        own = own.reshape(n, heads, -1)
        b, c = (part.reshape(n, self.groups, -1).repeat_interleave(heads // self.groups, 1) for part in (b, c))
        dt = F.softplus(dt.to(wide) + self.shift).clamp(*self.limits)
        y = scanned(c, b, own * dt[..., None], dt * self.decay, None, layer, plan)
        y = torch.addcmul(y, own, self.skip[:, None]).reshape(n, inner) * F.silu(z.to(wide))
        parts = F.rms_norm(y.view(n, self.norm_groups, -1), (inner // self.norm_groups,), None, self.eps)
        return self.norm * parts.view(n, inner).to(x.dtype)


RecurrentMixer = GatedConvolution | GatedDeltaNet | Mamba2
"""What such a layer has in place of attention."""


def scanned(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None, layer: int, plan: RecurrentPlan) -> Tensor:
    """The outputs [n, heads, value] of a recurrence over all runs of a forward."""
    part, checkpoints = (layer, "state"), plan.checkpoints
    checkpoints.lay_out(part, (q.shape[1], q.shape[2], v.shape[2]), v.dtype, v.device)
    out = torch.empty_like(v)
    for runs in plan.groups:
        at = runs.tokens
        y, state = scan(
            q[at],
            _real(k, runs),
            v[at],
            _real(g, runs),
            None if beta is None else beta[at],
            checkpoints.read(part, runs.start),
        )
        checkpoints.write(part, runs.end, state)
        if runs.real is None:
            out[at] = y
        else:
            out[at[runs.real]] = y[runs.real]
    return out


def _real(x: Tensor, runs: Runs) -> Tensor:
    """The numbers of the runs' tokens, 0 for those that fill up a run, so that they leave its state alone."""
    own = x[runs.tokens]
    return own if runs.real is None else own.where(runs.real.view(*runs.real.shape, *[1] * (own.dim() - 2)), 0.0)
