"""The gated perceptron's middle: one half of each row, bent, times the other half."""

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait

SILU, GELU = "silu", "gelu_tanh"  # as Shape.activation has them


@triton.jit
def bend(x, silu: tl.constexpr):
    """silu(x) = x·σ(x), or the tanh form of gelu: x·σ(2·sqrt(2/π)·(x + 0.044715·x³))."""
    if silu:
        steep = x
    else:
        steep = 1.5957691216057308 * (x + 0.044715 * x * x * x)
    return x / (1.0 + tl.exp(-steep))


@triton.jit
def _gate(both, out, hidden, stride, silu: tl.constexpr, block: tl.constexpr, chained: tl.constexpr):
    start(chained)
    wait(chained)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    g = tl.load(both + row * stride + column, mask=inside, other=0.0)
    u = tl.load(both + row * stride + hidden + column, mask=inside, other=0.0)
    bent = bend(g.to(tl.float32), silu).to(g.dtype).to(tl.float32)
    tl.store(out + row * hidden + column, (bent * u.to(tl.float32)).to(g.dtype), mask=inside)


def gate(both: Tensor, activation: str) -> Tensor:
    """act(gate)·up for both = [gate, up], [n, 2·hidden]; act is SILU or GELU, rounded before the product.

    Cost: one launch.
    """
    n, hidden = both.shape[0], both.shape[1] // 2
    out = torch.empty(n, hidden, dtype=both.dtype, device=both.device)
    chain = chained()
    _gate[(n, triton.cdiv(hidden, 1024))](
        both,
        out,
        hidden,
        both.stride(0),
        silu=activation == SILU,
        block=1024,
        num_warps=4,
        chained=chain,
        launch_pdl=chain,
    )
    return out


def reference(both: Tensor, activation: str) -> Tensor:
    """The same."""
    g, u = both.chunk(2, -1)
    return (F.silu(g) if activation == SILU else F.gelu(g, approximate="tanh")) * u
