"""What layers apply to packed tokens: matrices, by whichever public kernel is fastest for so many, and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ..process_setting import ProcessSetting

PAIR = 2  # tokens up to which float32 products are faster the other way round on one thread
NARROW = frozenset((*range(1, 9), *range(16, 65)))  # and numbers of tokens for which they are on more (measured)


class Linear(Protocol):
    """x ↦ x·Wᵀ + b for x [n, in]; the result [n, out] may be strided."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it."""


MakeLinear = Callable[[Tensor, Tensor | None], Linear]
"""Makes a Linear of a weight [out, in], which it may keep or lay out anew, and a bias [out]."""


def dense(weight: Tensor, bias: Tensor | None) -> Linear:
    """Keep the weight as it is, so that others can share its storage, and choose a kernel for its type and device."""
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        return Float32Linear(weight, bias)
    if weight.device.type == "cpu" and weight.dtype == torch.bfloat16:
        return Bfloat16Linear(weight, bias)
    return DenseLinear(weight, bias)


class DenseLinear:
    """PyTorch's own choice of kernel."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Float32Linear:
    """float32 on a CPU. W·xᵀ with x stored by rows streams W about twice as fast as x·Wᵀ, which is the same numbers.

    One token alone would go to MKL's gemv, the slowest of all here: it is doubled to reach the gemm.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        count = x.shape[0]
        if count == 1:
            y = torch.mm(self.weight, torch.cat((x, x)).t()).t()[:1]
        elif count <= PAIR or (count in NARROW and torch.get_num_threads() > 1):
            y = torch.mm(self.weight, x.contiguous().t()).t()
        else:
            return F.linear(x, self.weight, self.bias)
        return y if self.bias is None else y + self.bias


def _set_onednn(enabled: bool) -> None:
    torch.backends.mkldnn.enabled = enabled  # type: ignore[assignment]


ONEDNN = ProcessSetting(lambda: bool(torch.backends.mkldnn.enabled), _set_onednn)


class Bfloat16Linear:
    """bfloat16 on a CPU. For one or two tokens PyTorch's dot products (sums in float32) beat oneDNN's unpacked matmul.

    The switch that leaves oneDNN out belongs to the process; it is set for the length of one product, and another
    thread's product that falls into it gets the same numbers up to rounding.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] > 2:
            return F.linear(x, self.weight, self.bias)
        with ONEDNN.set_to(False):
            return F.linear(x, self.weight, self.bias)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension of x.

    A weight of a wider type than x asks for the product in that type and one rounding after it, as Gemma has it.
    A weight of several dimensions gives each head its own factors.
    """
    if weight.dim() == 1 and weight.dtype == x.dtype:
        return F.rms_norm(x, weight.shape, weight, eps)
    return (F.rms_norm(x.to(weight.dtype), weight.shape[-1:], None, eps) * weight).to(x.dtype)
