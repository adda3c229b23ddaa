"""Rotary position frequencies: how fast each pair of a head turns, for every kind of context stretching."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .layer_shape import RopeScaling, RopeSpec


def rope_frequencies(
    rope: RopeSpec,
    device: torch.device | str | None = None,
    factors: Tensor | None = None,
    length: int | None = None,
) -> tuple[Tensor, float]:
    """Return (inverse frequencies [width/2] in float32, the factor on cos and sin).

    θ_i = theta^(−2i/width), then stretched as `rope.scaling` says. `factors` divides the frequencies: the
    `rope_factors` of a checkpoint. `length` is the text's length where the scaling asks for it (dynamic, longrope); it
    defaults to a text within the context of pre-training.
    """
    base, scaling = rope.theta, rope.scaling
    exponent = torch.arange(0, rope.width, 2, dtype=torch.int64).float() / rope.width
    scale = 1.0
    if scaling is None:
        inverse = 1.0 / base**exponent
    elif scaling.kind == "linear":
        inverse = 1.0 / base**exponent / scaling.factor
    elif scaling.kind == "dynamic":
        inverse = 1.0 / _grown(rope, scaling, length) ** exponent
    elif scaling.kind == "llama3":
        inverse = _llama3(1.0 / base**exponent, scaling)
    elif scaling.kind == "yarn":
        inverse, scale = _yarn(base, exponent, scaling, rope.width), _yarn_scale(scaling)
    else:
        long = length is not None and length > scaling.original_context
        inverse = 1.0 / (torch.tensor(scaling.long_factors if long else scaling.short_factors) * base**exponent)
        scale = _longrope_scale(scaling)
    if rope.pairs:
        inverse[rope.pairs :] = 0.0
    if factors is not None:
        inverse = inverse / factors.float().cpu()
    return inverse.to(device), scale


def _grown(rope: RopeSpec, scaling: RopeScaling, length: int | None) -> float:
    """Grow the base with the text, so that its slowest pair still turns less than once."""
    length = max(length or 0, scaling.original_context)
    growth = scaling.factor * length / scaling.original_context - (scaling.factor - 1)
    return float(rope.theta * growth ** (rope.width / (rope.width - 2)))


def _llama3(inverse: Tensor, scaling: RopeScaling) -> Tensor:
    """Slow pairs turn `factor` times slower, fast pairs as they did, and the pairs between are blended."""
    low, high = scaling.low_frequency or 1.0, scaling.high_frequency or 4.0
    wavelength = 2 * math.pi / inverse
    blend = (scaling.original_context / wavelength - low) / (high - low)
    between = (1 - blend) * inverse / scaling.factor + blend * inverse
    slow = torch.where(wavelength > scaling.original_context / low, inverse / scaling.factor, between)
    return torch.where(wavelength < scaling.original_context / high, inverse, slow)


def _yarn(base: float, exponent: Tensor, scaling: RopeScaling, dim: int) -> Tensor:
    """Blend interpolated and plain frequencies along a ramp between two numbers of turns (2309.00071)."""

    def pair(turns: float) -> float:
        return dim * math.log(scaling.original_context / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    high += 0.001 if low == high else 0  # a ramp needs some width
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    plain = base**exponent
    keep = 1 - ramp
    return 1.0 / (scaling.factor * plain) * (1 - keep) + 1.0 / plain * keep


def _yarn_scale(scaling: RopeScaling) -> float:
    def grown(mscale: float = 1.0) -> float:
        return 1.0 if scaling.factor <= 1 else 0.1 * mscale * math.log(scaling.factor) + 1.0

    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.mscale and scaling.mscale_all:
        return grown(scaling.mscale) / grown(scaling.mscale_all)
    return grown()


def _longrope_scale(scaling: RopeScaling) -> float:
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.original_context))
