"""The shape of a Llama-family model: every number that fixes its tensors and its arithmetic, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import torch

from ..core.errors import BadModel

Layout = Literal["block", "blocks", "full", "causal"]
Reading = Literal["aligned", "shifted"]
RopeKind = Literal["linear", "dynamic", "llama3", "yarn", "longrope"]
Activation = Literal["silu", "gelu_tanh"]
_LISTED = 8


@dataclass(frozen=True)
class ExpertSpec:
    """What fixes a layer whose perceptron is split into `count` experts, of which a token uses `active`.

    The experts stand in `groups` of neighbours, of which a token may use `open` ones. A bias per expert, if `biased`,
    moves the choice and never the weights; these are divided by their sum if `normed`, and multiplied by `scale`. The
    expert that every token uses has a hidden width of `shared`, 0 if there is none; the others have `hidden`. The first
    `dense` layers keep their one perceptron. `runtime.network.experts` has the formula.
    """

    count: int
    active: int
    hidden: int
    shared: int = 0
    groups: int = 1
    open: int = 1
    biased: bool = True
    normed: bool = True
    scale: float = 1.0
    dense: int = 0

    def __post_init__(self) -> None:
        each = self.count // self.groups
        problems = (
            (self.count % self.groups, f"{self.count} experts cannot be cut into {self.groups} equal groups"),
            (self.groups > 1 and each < 2, f"{self.groups} groups of one expert, but two are needed to judge one"),
            (self.open > self.groups, f"a token may use {self.open} groups of {self.groups}"),
            (self.active > self.open * each, f"a token uses {self.active} experts, of {self.open * each} it may"),
        )
        for wrong, problem in problems:
            if wrong:
                raise BadModel(f"This mixture of experts cannot be built: {problem}. Its configuration is damaged.")

    def tensors(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Return the name (within the perceptron) and the shape of every tensor of one such layer."""
        found: dict[str, tuple[int, ...]] = {"gate.weight": (self.count, dim)}
        if self.biased:
            found["gate.expert_bias"] = (self.count,)
        widths = {f"experts.{number}": self.hidden for number in range(self.count)}
        if self.shared:
            widths["shared_experts"] = self.shared
        for name, hidden in widths.items():
            found[f"{name}.gate_proj.weight"] = found[f"{name}.up_proj.weight"] = (hidden, dim)
            found[f"{name}.down_proj.weight"] = (dim, hidden)
        return found

    def width(self, dim: int) -> int:
        """How many numbers a token has at the widest place: what goes to its experts, comes from them and is summed."""
        return 3 * self.active * dim + 2 * max(self.hidden, self.shared)


@dataclass(frozen=True)
class DiffusionSpec:
    """What a network that fills holes takes for granted.

    In the layout "block" the text left of the window is read from left to right, and the places of the window see
    all of it and each other. In "blocks" every place sees its own block, of `block` places counted from the first,
    and all blocks before it, so that no text is read from left to right. In "full" everything sees everything. In
    "causal" every place sees the filled ones left of it, and a hole also all filled places of the window and the
    holes before it. The law of place i is read at place i ("aligned") or at place i − 1 ("shifted"). A hole looks
    like the token `mask`, which is never written; if it is `learned`, it has a vector of its own, the tensor
    `model.mask`, and the token's own embedding is left alone.
    """

    layout: Layout
    reading: Reading
    mask: int
    learned: bool = False
    block: int = 1

    @property
    def reads(self) -> bool:
        """Whether text is also read from left to right, as by any causal model."""
        return self.layout in ("block", "causal")

    @property
    def together(self) -> int | None:
        """How many places to fill together unless told; None if that is all the same to the model.

        A model that was adapted here knows blocks of 4 to 32 places, and does best with 8 (docs/denoise.md).
        """
        return {"blocks": self.block, "block": max(8, self.block)}.get(self.layout)

    def whole(self, size: int) -> int:
        """So many places without the last, unfinished block."""
        return size // self.block * self.block


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the context of pre-training; fields a kind does not use stay None."""

    kind: RopeKind
    factor: float
    original_context: int
    low_frequency: float | None = None
    high_frequency: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all: float | None = None
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Shape:
    """A decoder of the Llama family: Llama, Mistral, SmolLM, Qwen2/2.5, Qwen3 and Gemma 3 differ only in these fields.

    `windows[i]` is how many tokens layer i sees (itself included), or None for all. Windowed layers turn with
    `local_rope_theta` where it is given. `query_scale` multiplies q·k; `embed_scale` multiplies token embeddings.
    Of each head the first `rotary` numbers are turned. Norm weights are always loaded as plain factors, whatever offset
    the file stores them with. `mixture` is there if layers have experts, and `filling` if the model also fills holes.
    """

    family: str
    layers: int
    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    context: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    windows: tuple[int | None, ...] = ()
    post_norms: bool = False
    embed_scale: float = 1.0
    activation: Activation = "silu"
    local_rope_theta: float | None = None
    query_scale: float = 0.0
    filling: DiffusionSpec | None = None
    rotary: int = 0
    mixture: ExpertSpec | None = None

    def __post_init__(self) -> None:
        if not self.windows:
            object.__setattr__(self, "windows", (None,) * self.layers)
        if not self.query_scale:
            object.__setattr__(self, "query_scale", self.head_dim**-0.5)
        if not self.rotary:
            object.__setattr__(self, "rotary", self.head_dim)
        mask = -1 if self.filling is None else self.filling.mask
        problems = (
            (self.heads % self.kv_heads, f"{self.heads} query heads cannot share {self.kv_heads} key-value heads"),
            (self.rotary % 2, f"{self.rotary} numbers of a head are turned, but rotary embeddings need an even number"),
            (self.rotary > self.head_dim, f"{self.rotary} numbers of a head are turned, but it has {self.head_dim}"),
            (len(self.windows) - self.layers, f"{len(self.windows)} layer windows for {self.layers} layers"),
            (mask >= self.vocab, f"its mask is token {mask}, but it has only {self.vocab}"),
        )
        for wrong, problem in problems:
            if wrong:
                raise BadModel(f"This {self.family} model cannot be built: {problem}. Its configuration is damaged.")

    @classmethod
    def from_config(cls, config: Mapping[str, object], source: str = "config.json") -> Shape:
        """Read the settings of a Hugging Face config.json."""
        from .config import read_config  # which makes a Shape

        return read_config(config, source)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], tensors: Collection[str] = (), source: str = "GGUF") -> Shape:
        """Read the settings of a GGUF file; `tensors` names what the file holds (ties show by absence)."""
        from .architecture import read_architecture  # which makes a Shape

        return read_architecture(metadata, tensors, source)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the name and the shape of every tensor of this model, embeddings first."""
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.dim)}
        for layer in range(self.layers):
            found.update((f"model.layers.{layer}.{name}", size) for name, size in self.layer_tensors(layer).items())
        found["model.norm.weight"] = (self.dim,)
        if not self.tied:
            found["lm_head.weight"] = (self.vocab, self.dim)
        if self.filling is not None and self.filling.learned:
            found["model.mask"] = (self.dim,)
        return found

    def layer_tensors(self, layer: int) -> dict[str, tuple[int, ...]]:
        """Return the name (within its layer) and the shape of every tensor of one layer."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        linear = {
            "self_attn.q_proj": (q, self.dim, self.qkv_bias),
            "self_attn.k_proj": (kv, self.dim, self.qkv_bias),
            "self_attn.v_proj": (kv, self.dim, self.qkv_bias),
            "self_attn.o_proj": (self.dim, q, self.out_bias),
        }
        mixture = self.mixture_of(layer)
        if mixture is None:
            linear["mlp.gate_proj"] = linear["mlp.up_proj"] = (self.hidden, self.dim, self.mlp_bias)
            linear["mlp.down_proj"] = (self.dim, self.hidden, self.mlp_bias)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if self.post_norms:
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        found: dict[str, tuple[int, ...]] = {f"{name}.weight": (self.dim,) for name in norms}
        for name, (rows, columns, bias) in linear.items():
            found[f"{name}.weight"] = (rows, columns)
            if bias:
                found[f"{name}.bias"] = (rows,)
        if self.qk_norm:
            found["self_attn.q_norm.weight"] = found["self_attn.k_norm.weight"] = (self.head_dim,)
        if mixture is not None:
            found.update((f"mlp.{name}", size) for name, size in mixture.tensors(self.dim).items())
        return found

    def part(self, layers: Sequence[int]) -> Shape:
        """The same with these of its layers alone."""
        return replace(self, layers=len(layers), windows=tuple(self.windows[i] for i in layers))

    def mixture_of(self, layer: int) -> ExpertSpec | None:
        """Return the experts of a layer, or None if it has one perceptron."""
        return self.mixture if self.mixture is not None and layer >= self.mixture.dense else None

    def check(
        self, source: str, sizes: Mapping[str, tuple[int, ...]], needed: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        """Compare the tensors a file holds with those this model needs, and list every difference at once.

        `needed` are these as the file calls them, where that is another way.
        """
        needed = self.tensors() if needed is None else needed
        missing = [name for name in needed if name not in sizes]
        wrong = [
            f"{name} {sizes[name]} (expected {size})" for name, size in needed.items() if sizes.get(name, size) != size
        ]
        for problems, what in ((missing, "misses"), (wrong, "has the wrong shape for")):
            if problems:
                listed = ", ".join(problems[:_LISTED]) + (", ..." if len(problems) > _LISTED else "")
                raise BadModel(
                    f"{source}: {what} {len(problems)} of {len(needed)} tensors of a {self.family} model: {listed}. "
                    "The file is incomplete, or its settings belong to another; download both again."
                )

    @property
    def parameters(self) -> int:
        """The number of distinct parameters; tied embeddings count once."""
        outside = self.vocab * self.dim * (1 if self.tied else 2) + self.dim
        inside = (self.layer_tensors(layer).values() for layer in range(self.layers))
        return outside + sum(prod(size) for sizes in inside for size in sizes)

    def kv_bytes(self, dtype: torch.dtype) -> int:
        """Return the bytes of keys and values that one token leaves in the cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim * dtype.itemsize
