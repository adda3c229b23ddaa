"""What fixes a layer that mixes tokens otherwise than by attention on keys and values of every head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from .layer_shape import RopeSpec  # whose layers name these

Sizes = dict[str, tuple[int, ...]]


class _Stateful:
    """What all layers have that carry a state from token to token: every token leaves nothing in the cache."""

    kind: ClassVar[Literal["recurrent"]] = "recurrent"
    cached: ClassVar = 0

    def oddities(self) -> Iterator[str]:
        """What it has that kernels for the Llama family do not know, in words."""
        yield "recurrent layers"


@dataclass(frozen=True)
class ConvolutionSpec(_Stateful):
    """A gated convolution over the last `size` tokens, each number by itself (LFM2)."""

    size: int
    bias: bool = False

    def tensors(self, dim: int) -> Sizes:
        """Return the name (within its layer) and the shape of every tensor of it."""
        return {
            **matrix("conv.in_proj", 3 * dim, dim, self.bias),
            **convolution("conv.conv", dim, self.size, self.bias),
            **matrix("conv.out_proj", dim, dim, self.bias),
        }

    def width(self, dim: int) -> int:
        """How many numbers of a token are there at once within it."""
        return 5 * dim

    def state_bytes(self, dim: int, width: int) -> int:
        """What a token leaves to those that follow it, with numbers of so many bytes."""
        return (self.size - 1) * dim * width


@dataclass(frozen=True)
class DeltaSpec(_Stateful):
    """A gated delta net: `key_heads` queries and keys of `key_dim`, shared by `heads` values of `value_dim`.

    All go through a convolution over `size` tokens. If `fused`, a file keeps what belongs to a key head together:
    its query, its key, and the values and gates of its value heads.
    """

    key_heads: int
    heads: int
    key_dim: int
    value_dim: int
    size: int
    fused: bool = False

    @property
    def keys(self) -> int:
        """How many numbers the keys of a token have."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """How many numbers the values of a token have."""
        return self.heads * self.value_dim

    def tensors(self, dim: int) -> Sizes:
        """Return the name (within its layer) and the shape of every tensor of it."""
        at, width = "linear_attn", 2 * self.keys + self.values
        rows = {"qkvz": width + self.values, "ba": 2 * self.heads}
        if not self.fused:
            rows = {"qkv": width, "z": self.values, "b": self.heads, "a": self.heads}
        found: Sizes = {f"{at}.in_proj_{part}.weight": (count, dim) for part, count in rows.items()}
        found |= convolution(f"{at}.conv1d", width, self.size, False)
        found |= {f"{at}.dt_bias": (self.heads,), f"{at}.A_log": (self.heads,), f"{at}.norm.weight": (self.value_dim,)}
        return found | matrix(f"{at}.out_proj", dim, self.values, False)

    def width(self, dim: int) -> int:
        """How many numbers of a token are there at once within it."""
        return 2 * (2 * self.keys + self.values) + 3 * self.values + 2 * self.heads

    def state_bytes(self, dim: int, width: int) -> int:
        """What a token leaves to those that follow it, with numbers of so many bytes; its matrices have at least 4."""
        return self.values * self.key_dim * max(4, width) + (self.size - 1) * (2 * self.keys + self.values) * width


@dataclass(frozen=True)
class MambaSpec(_Stateful):
    """A Mamba-2 layer: `heads` of `head_dim`, each with a matrix of `state_dim` rows; `groups` of heads share B and C.

    x, B and C go through a convolution over `size` tokens. Steps lie within `limits`. What leaves is normed in
    `norm_groups` parts.
    """

    heads: int
    head_dim: int
    groups: int
    state_dim: int
    size: int
    limits: tuple[float, float]
    bias: bool = False
    conv_bias: bool = True
    norm_groups: int = 1

    @property
    def inner(self) -> int:
        """How many numbers a token has within it."""
        return self.heads * self.head_dim

    @property
    def mixed(self) -> int:
        """How many numbers of a token go through the convolution."""
        return self.inner + 2 * self.groups * self.state_dim

    def tensors(self, dim: int) -> Sizes:
        """Return the name (within its layer) and the shape of every tensor of it."""
        found: Sizes = matrix("mamba.in_proj", self.inner + self.mixed + self.heads, dim, self.bias)
        found |= convolution("mamba.conv1d", self.mixed, self.size, self.conv_bias)
        found |= {f"mamba.{name}": (self.heads,) for name in ("dt_bias", "A_log", "D")}
        found["mamba.norm.weight"] = (self.inner,)
        return found | matrix("mamba.out_proj", dim, self.inner, self.bias)

    def width(self, dim: int) -> int:
        """How many numbers of a token are there at once within it; what it reads from its matrices has 4 bytes."""
        return 2 * self.mixed + 4 * self.inner + self.heads

    def state_bytes(self, dim: int, width: int) -> int:
        """What a token leaves to those that follow it, with numbers of so many bytes; its matrices have at least 4."""
        return self.inner * self.state_dim * max(4, width) + (self.size - 1) * self.mixed * width


@dataclass(frozen=True)
class LatentSpec:
    """Latent attention (MLA, 2405.04434): a token leaves a vector of `rank` and a key of `rope.width` for all heads.

    A head's key and value, of `plain` and `value_dim` numbers, are matrices times that vector. Queries come from a
    vector of `query_rank` if that is not None. If `interleaved`, a file keeps the pairs that turn side by side.
    """

    kind: ClassVar[Literal["latent"]] = "latent"
    heads: int
    rank: int
    query_rank: int | None
    plain: int
    value_dim: int
    scale: float
    rope: RopeSpec
    interleaved: bool = True
    bias: bool = False
    norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        """How many numbers the query of a head has."""
        return self.plain + self.rope.width

    @property
    def cached(self) -> int:
        """How many numbers a token leaves in the cache."""
        return self.rank + self.rope.width

    def oddities(self) -> Iterator[str]:
        """What it has that kernels for the Llama family do not know, in words."""
        yield "latent attention"

    def tensors(self, dim: int) -> Sizes:
        """Return the name (within its layer) and the shape of every tensor of it."""
        at, queries = "self_attn", self.heads * self.head_dim
        if self.query_rank is None:
            found = matrix(f"{at}.q_proj", queries, dim, False)
        else:
            found = matrix(f"{at}.q_a_proj", self.query_rank, dim, self.bias)
            found |= {f"{at}.q_a_layernorm.weight": (self.query_rank,)}
            found |= matrix(f"{at}.q_b_proj", queries, self.query_rank, False)
        found |= matrix(f"{at}.kv_a_proj_with_mqa", self.rank + self.rope.width, dim, self.bias)
        found[f"{at}.kv_a_layernorm.weight"] = (self.rank,)
        found |= matrix(f"{at}.kv_b_proj", self.heads * (self.plain + self.value_dim), self.rank, False)
        return found | matrix(f"{at}.o_proj", dim, self.heads * self.value_dim, self.bias)


RecurrentSpec = ConvolutionSpec | DeltaSpec | MambaSpec


def matrix(at: str, rows: int, columns: int, bias: bool) -> Sizes:
    """The name and the shape of a matrix, and of what is added to its product."""
    return {f"{at}.weight": (rows, columns), **({f"{at}.bias": (rows,)} if bias else {})}


def convolution(at: str, width: int, size: int, bias: bool) -> Sizes:
    """The same of a convolution of each number by itself."""
    return {f"{at}.weight": (width, 1, size), **({f"{at}.bias": (width,)} if bias else {})}
