"""Recurrent layers inside CUDA graphs: states lie where kernels find them by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...kernels.delta_net import delta_net
from ...kernels.gated_norm import gate_then_norm, norm_then_gate
from ...kernels.kernel_rows import Rows
from ...kernels.mamba import mamba
from ...kernels.short_convolution import short_convolution
from ..cache.checkpoint_pool import CheckpointPool
from ..network.layer import Layer
from ..network.linear import Linear
from ..network.recurrent import GatedConvolution, GatedDeltaNet, Mamba2, RecurrentMixer

MIXERS = (GatedConvolution, GatedDeltaNet, Mamba2)
INPUTS, STATE = "inputs", "state"
Product = Callable[[Linear, Tensor], Tensor]


def lay_out(stack: Sequence[Layer], checkpoints: CheckpointPool, dtype: torch.dtype, device: torch.device) -> bool:
    """Have storage for the states of all layers, as many as have been taken; whether some of it had to move."""
    moved = False
    for index, layer in enumerate(stack):
        mixer = layer.mixer
        if not isinstance(mixer, MIXERS):
            continue
        width, size = mixer.conv.weight.shape
        moved |= checkpoints.lay_out((index, INPUTS), (size - 1, width), dtype, device)
        if isinstance(mixer, GatedDeltaNet):
            sizes = len(mixer.decay), len(mixer.norm), mixer.key_dim
            moved |= checkpoints.lay_out((index, STATE), sizes, torch.float32, device)
        elif isinstance(mixer, Mamba2):
            sizes = len(mixer.decay), len(mixer.norm) // len(mixer.decay), mixer.state
            moved |= checkpoints.lay_out((index, STATE), sizes, torch.float32, device)
    return moved


def recurred(
    mixer: RecurrentMixer, x: Tensor, index: int, rows: Rows, checkpoints: CheckpointPool, product: Product
) -> Tensor:
    """What normed tokens [n, dim] make of the states they go on from: what the layer's output matrix is applied to."""
    inputs = checkpoints.stored((index, INPUTS))
    if isinstance(mixer, GatedConvolution):
        b, c, x = product(mixer.bcx, x).chunk(3, -1)
        return short_convolution(b * x, mixer.conv.weight, mixer.conv.bias, rows, inputs, times=c)
    states = checkpoints.stored((index, STATE))
    if isinstance(mixer, GatedDeltaNet):
        own = len(mixer.decay) * len(mixer.norm)
        qkvz, ba = product(mixer.qkvz, x), product(mixer.ba, x)
        mixed = short_convolution(qkvz[:, :-own], mixer.conv.weight, mixer.conv.bias, rows, inputs, silu=True)
        y = delta_net(mixed, ba, mixer.decay, mixer.shift, rows, states, mixer.key_heads)
        return norm_then_gate(y, mixer.norm, qkvz[:, -own:], mixer.eps)
    found, inner, heads = product(mixer.projection, x), len(mixer.norm), len(mixer.decay)
    wide, dt = found[:, inner:-heads], found[:, -heads:]
    mixed = short_convolution(wide, mixer.conv.weight, mixer.conv.bias, rows, inputs, silu=True)
    y = mamba(mixed, dt, mixer.decay, mixer.shift, mixer.skip, rows, states, mixer.groups, mixer.limits)
    return gate_then_norm(y, mixer.norm, found[:, :inner], mixer.eps, mixer.norm_groups)
