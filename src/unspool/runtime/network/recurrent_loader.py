"""The weights of recurrent and latent layers, read from a checkpoint and laid out as the network applies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...models.mixer_shape import ConvolutionSpec, DeltaSpec, LatentSpec, MambaSpec, RecurrentSpec
from .latent_attention import LatentAttention
from .recurrent import GatedConvolution, GatedDeltaNet, Mamba2, RecurrentMixer, ShortConvolution

if TYPE_CHECKING:
    from .layer import Loader  # which calls this


def recurrent(read: Loader, at: str, spec: RecurrentSpec) -> RecurrentMixer:
    """The mixer of a recurrent layer, whose tensors begin with `at`."""
    if isinstance(spec, ConvolutionSpec):
        return _convolution(read, f"{at}.conv", spec)
    return _delta(read, f"{at}.linear_attn", spec) if isinstance(spec, DeltaSpec) else _mamba(read, f"{at}.mamba", spec)


def _convolution(read: Loader, at: str, spec: ConvolutionSpec) -> GatedConvolution:
    return GatedConvolution(
        read.matrix([f"{at}.in_proj"], spec.bias),
        _short(read, f"{at}.conv", spec.bias),
        read.matrix([f"{at}.out_proj"], spec.bias),
    )


def _delta(read: Loader, at: str, spec: DeltaSpec) -> GatedDeltaNet:
    if spec.fused:
        group = spec.heads // spec.key_heads
        parts = [spec.key_dim, spec.key_dim, group * spec.value_dim, group * spec.value_dim]
        qkvz = read.linear(_unfused(read.tensor(f"{at}.in_proj_qkvz.weight"), spec.key_heads, parts), None)
        ba = read.linear(_unfused(read.tensor(f"{at}.in_proj_ba.weight"), spec.key_heads, [group, group]), None)
    else:
        qkvz = read.matrix([f"{at}.in_proj_qkv", f"{at}.in_proj_z"], False)
        ba = read.matrix([f"{at}.in_proj_b", f"{at}.in_proj_a"], False)
    return GatedDeltaNet(
        qkvz,
        ba,
        _short(read, f"{at}.conv1d", False),
        read.matrix([f"{at}.out_proj"], False),
        decay=-_wide(read, f"{at}.A_log").exp(),
        shift=_wide(read, f"{at}.dt_bias"),
        norm=read.tensor(f"{at}.norm.weight"),
        eps=read.checkpoint.shape.norm_eps,
        key_heads=spec.key_heads,
        key_dim=spec.key_dim,
    )


def _mamba(read: Loader, at: str, spec: MambaSpec) -> Mamba2:
    return Mamba2(
        read.matrix([f"{at}.in_proj"], spec.bias),
        _short(read, f"{at}.conv1d", spec.conv_bias),
        read.matrix([f"{at}.out_proj"], spec.bias),
        decay=-_wide(read, f"{at}.A_log").exp(),
        shift=_wide(read, f"{at}.dt_bias"),
        skip=_wide(read, f"{at}.D"),
        norm=read.tensor(f"{at}.norm.weight"),
        eps=read.checkpoint.shape.norm_eps,
        groups=spec.groups,
        state=spec.state_dim,
        limits=spec.limits,
        norm_groups=spec.norm_groups,
    )


def latent(read: Loader, at: str, spec: LatentSpec) -> LatentAttention:
    """The latent attention of a layer, whose tensors begin with `at`."""
    split, first = spec.query_rank is not None, "q_b_proj" if spec.query_rank is not None else "q_proj"
    queries = read.tensor(f"{at}.{first}.weight").view(spec.heads, spec.head_dim, -1)
    down = read.tensor(f"{at}.kv_a_proj_with_mqa.weight")
    bias = read.tensor(f"{at}.kv_a_proj_with_mqa.bias") if spec.bias else None
    if spec.interleaved:
        queries, down = _halved(queries, spec.rope.width), _halved(down[None], spec.rope.width)[0]
        bias = None if bias is None else _halved(bias[None, :, None], spec.rope.width)[0, :, 0]
    up = read.tensor(f"{at}.kv_b_proj.weight").view(spec.heads, spec.plain + spec.value_dim, spec.rank)
    return LatentAttention(
        spec,
        reduce=read.matrix([f"{at}.q_a_proj"], spec.bias) if split else None,
        reduce_norm=read.norm(f"{at}.q_a_layernorm") if split else None,
        queries=read.linear(queries.flatten(0, 1).contiguous(), None),
        latent=read.linear(down.contiguous(), bias),
        latent_norm=read.norm(f"{at}.kv_a_layernorm"),
        keys=up[:, : spec.plain].contiguous(),
        values=up[:, spec.plain :].transpose(1, 2).contiguous(),
        out=read.matrix([f"{at}.o_proj"], spec.bias),
    )


def _short(read: Loader, at: str, bias: bool) -> ShortConvolution:
    return ShortConvolution(
        read.tensor(f"{at}.weight").squeeze(1).contiguous(), read.tensor(f"{at}.bias") if bias else None
    )


def _wide(read: Loader, name: str) -> Tensor:
    """Numbers that go through an exponential: never in fewer bits than float32."""
    return read.checkpoint.tensor(name, torch.promote_types(read.dtype, torch.float32)).to(read.device)


def _unfused(weight: Tensor, groups: int, parts: list[int]) -> Tensor:
    """Rows that a file keeps group by group, part by part."""
    split = torch.split(weight.view(groups, sum(parts), -1), parts, 1)
    return torch.cat([part.reshape(-1, weight.shape[1]) for part in split])


def _halved(rows: Tensor, width: int) -> Tensor:
    """The last `width` rows of each head [heads, rows, in] with pairs (2i, 2i + 1) at (i, i + width / 2)."""
    plain, turned = rows[:, : rows.shape[1] - width], rows[:, rows.shape[1] - width :]
    return torch.cat((plain, turned[:, 0::2], turned[:, 1::2]), 1)
