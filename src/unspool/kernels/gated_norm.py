"""Norms with a gate, as recurrent layers have them behind their states."""

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait


@triton.jit
def _gated_norm(
    y, z, weight, out, z_stride, parts, width, eps,
    block: tl.constexpr, early: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, block)
    inside = column < width
    kind = out.dtype.element_ty
    spot = token * parts * width + part * width + column
    given = tl.load(y + spot, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(z + token * z_stride + part * width + column, mask=inside, other=0.0).to(tl.float32)
    gate = gate / (1.0 + tl.exp(-gate))
    if early:
        given *= gate
        weight += part * width
    wide = given.to(tl.float64)
    size = tl.rsqrt((tl.sum(wide * wide, 0) / width).to(tl.float32) + eps)
    normed = (given * size).to(kind).to(tl.float32)
    normed = (normed * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)).to(kind)
    if not early:
        normed = (normed.to(tl.float32) * gate).to(kind)
    tl.store(out + spot, normed, mask=inside)


def norm_then_gate(y: Tensor, weight: Tensor, z: Tensor, eps: float) -> Tensor:
    """rms(y)·w·SiLU(z) for every head of y and z [n, heads · width], weight [width]. Cost: one launch."""
    return _normed(y, weight, z, eps, y.shape[1] // len(weight), y.dtype, early=False)


def gate_then_norm(y: Tensor, weight: Tensor, z: Tensor, eps: float, parts: int) -> Tensor:
    """rms(y·SiLU(z))·w in so many parts of y and z [n, width], weight [width]; the result has z's type.

    Cost: one launch.
    """
    return _normed(y, weight, z, eps, parts, z.dtype, early=True)


def _normed(y: Tensor, weight: Tensor, z: Tensor, eps: float, parts: int, dtype: torch.dtype, early: bool) -> Tensor:
    n, total = y.shape
    out = torch.empty(n, total, dtype=dtype, device=y.device)
    chain, block = chained(), triton.next_power_of_2(total // parts)
    _gated_norm[(n, parts)](
        y, z, weight, out, z.stride(0), parts, total // parts, eps, block=block, early=early,
        num_warps=max(1, min(16, block // 256)), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out


def reference(y: Tensor, weight: Tensor, z: Tensor, eps: float, parts: int, early: bool) -> Tensor:
    """Either of them, in float32."""
    n, total = y.shape
    gate = F.silu(z.float())
    given = (y.float() * gate if early else y.float()).view(n, parts, -1)
    normed = F.rms_norm(given, (total // parts,), None, eps)
    normed = (normed.view(n, total) * weight.float()) if early else (normed * weight.float()).view(n, total) * gate
    return normed.to(z.dtype)
