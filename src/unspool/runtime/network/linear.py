"""What is applied to packed tokens: embeddings, matrices, by whichever public kernel is fastest, perceptrons, norms.

Which precision a CPU decodes faster in is told by the clock: some have units for bfloat16, some only read it faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...models.layer_shape import Activation
from ...models.quant import QuantBlocks
from ..process_setting import ProcessSetting

if TYPE_CHECKING:
    from .hidden_transfer import HiddenTransfer  # of a few models alone

PAIR = 2  # tokens up to which float32 products are faster the other way round on one thread
NARROW = frozenset((*range(1, 9), *range(16, 65)))  # and numbers of tokens for which they are on more (measured)
SIZE = 2048  # numbers on a side: more than a cache holds, as the matrices of a model are
TURNS = 7
MARGIN = 0.9  # of the time of float32: a tie goes to the more precise
LIMIT, STEEP = 7.0, 1.702  # of gpt-oss's gate


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


Gated = Callable[[Tensor, Tensor], Tensor]
"""What is made of a gate and what it lets through."""


@dataclass(frozen=True)
class GatedMLP:
    """The perceptron of a layer, or of one expert, with gate and up in one matrix."""

    gate_up: Linear
    down: Linear
    gated: Gated

    def __call__(self, x: Tensor) -> Tensor:
        both = self.gate_up(x)
        width = both.shape[1] // 2
        return self.down(self.gated(both[:, :width], both[:, width:]))


@dataclass(frozen=True)
class SquaredMLP:
    """A perceptron without a gate: x ↦ down(relu(up(x))²), as Nemotron-H has it."""

    up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)).square_())


def gated_by(activation: Activation) -> Gated:
    """The function that an activation names."""
    return {"silu": _silu, "gelu_tanh": _gelu, "clamped_swish": _clamped_swish}[activation]


def _silu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate).mul_(up)


def _gelu(gate: Tensor, up: Tensor) -> Tensor:
    return F.gelu(gate, approximate="tanh").mul_(up)


def _clamped_swish(gate: Tensor, up: Tensor) -> Tensor:
    """g·sigmoid(1.702·g)·(u + 1), with g at most 7 and u from −7 to 7 (gpt-oss)."""
    gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
    return (gate * apart(gate * STEEP).sigmoid()).mul_(up + 1)


@dataclass(frozen=True)
class EmbeddingAndHead:
    """What stands before the first layer and behind the last."""

    table: Tensor | QuantBlocks  # [vocab, dim]
    scale: Tensor | None
    norm: Tensor
    head: Linear
    mask: Tensor | None = None  # what a hole looks like [dim]
    told: Callable[[Tensor, Tensor], Tensor] | None = None  # what layers are told of tokens beside, see `per_layer`
    transfer: HiddenTransfer | None = None  # what masks are handed of tokens before them

    @property
    def embedding(self) -> Tensor:
        """The table in full; one that is kept in blocks is decoded for it."""
        return self.table if isinstance(self.table, Tensor) else self.table.whole()

    @property
    def dtype(self) -> torch.dtype:
        """What tokens are embedded in."""
        return self.table.dtype if isinstance(self.table, Tensor) else torch.float32

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.norm.device

    def embed(self, tokens: Tensor) -> Tensor:
        """The rows of these tokens."""
        return F.embedding(tokens, self.table) if isinstance(self.table, Tensor) else self.table.rows(tokens)


def apart(x: Tensor) -> Tensor:
    """The same rows, but not side by side in memory, so that a function of each number goes row by row.

    The last bit of an exponential may depend on where in a run of numbers its own stands: this way on the row alone.
    """
    return F.pad(x, (0, 1))[:, :-1]


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension of x.

    A weight of a wider type than x asks for the product in that type and one rounding after it, as Gemma has it.
    A weight of several dimensions gives each head its own factors.
    """
    if weight.dim() == 1 and weight.dtype == x.dtype:
        return F.rms_norm(x, weight.shape, weight, eps)
    return (F.rms_norm(x.to(weight.dtype), weight.shape[-1:], None, eps) * weight).to(x.dtype)


@lru_cache
def fastest() -> torch.dtype:
    """bfloat16 if a matrix times a vector, what plain decoding mostly is, takes clearly less time in it; else float32.

    Cost: some 30 ms, once per process.
    """
    least = {dtype: min(_timed(dtype)) for dtype in (torch.float32, torch.bfloat16)}
    return torch.bfloat16 if least[torch.bfloat16] < MARGIN * least[torch.float32] else torch.float32


def _timed(dtype: torch.dtype) -> list[float]:
    matrix, vector = torch.ones(SIZE, SIZE, dtype=dtype), torch.ones(1, SIZE, dtype=dtype)
    times = []
    for _ in range(TURNS):
        began = perf_counter()
        torch.nn.functional.linear(vector, matrix)
        times.append(perf_counter() - began)
    return times[1:]
