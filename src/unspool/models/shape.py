"""The shape of a Llama-family model: every number that fixes its tensors and its arithmetic, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Literal

import torch

from ..core.errors import BadModel
from .layer_shape import Activation, AttentionSpec, ExpertSpec, LayerSpec, RopeScaling, RopeSpec, differing

if TYPE_CHECKING:
    from .mixer_shape import RecurrentSpec  # of some families alone

Layout = Literal["block", "blocks", "full", "causal"]
Reading = Literal["aligned", "shifted"]
_LISTED = 8
_MOST_MATRICES = 1 << 20  # of experts in all layers; the largest models have 70 thousand


@dataclass(frozen=True)
class DiffusionSpec:
    """What a network that fills holes takes for granted.

    In the layout "block" the text left of the window is read from left to right, and the places of the window see
    all of it and each other. In "blocks" every place sees its own block, of `block` places counted from the first,
    and all blocks before it, so that no text is read from left to right. In "full" everything sees everything. In
    "causal" every place sees the filled ones left of it, and a hole also all filled places of the window and the
    holes before it. The law of place i is read at place i ("aligned") or at place i − 1 ("shifted"). A hole looks
    like the token `mask`, which is never written; if it is `learned`, it has a vector of its own, the tensor
    `model.mask`, and the token's own embedding is left alone. With `transfers` the i-th of some masks behind a token
    holds, from layer transfers[i] on, what `model.transfer.i` makes of that token's state there (Hidden Transfer).
    """

    layout: Layout
    reading: Reading
    mask: int
    learned: bool = False
    block: int = 1
    transfers: tuple[int, ...] = ()

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
class Shape:
    """A decoder of the Llama family: all that are read here differ only in these fields.

    `windows[i]` is how many tokens layer i sees (itself included), or None for all. Windowed layers turn with
    `local_rope_theta` where it is given. `query_scale` multiplies q·k; `embed_scale` multiplies token embeddings.
    Of each head the first `rotary` numbers are turned. `mixture` is there if layers have experts, and `filling` if the
    model also fills holes. Where layers differ in more, or have what these fields cannot say, `each` describes them one
    by one; `stack` does so in any case, and is what a network is built from.

    A layer norms what enters attention and perceptron if `pre_norms`, and what leaves them if `post_norms`; what they
    add is multiplied by `residual_scale`, and the logits by `logit_scale`, then capped by `logit_softcap`. Norm weights
    are always loaded as plain factors: files store them less `norm_offset`. With `wide_norms` they multiply in float32.
    Rotary pairs are always numbers i and i + rotary/2 of a head, though files may have them `interleaved`.
    If `layer_scalars`, what leaves a layer is multiplied by a number of its own; layers are told their token again in
    vectors of `told` numbers (0: they are not).
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
    each: tuple[LayerSpec, ...] = ()
    pre_norms: bool = True
    wide_norms: bool = False
    norm_offset: float = 0.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    interleaved: bool = False
    layer_scalars: bool = False
    told: int = 0

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
            (self.each and len(self.each) != self.layers, f"{len(self.each)} descriptions of {self.layers} layers"),
            (mask >= self.vocab, f"its mask is token {mask}, but it has only {self.vocab}"),
            (3 * self._experts > _MOST_MATRICES, f"{self._experts} experts in {self.layers} layers"),
        )
        for wrong, problem in problems:
            if wrong:
                raise BadModel(f"This {self.family} model cannot be built: {problem}. Its configuration is damaged.")

    @property
    def _experts(self) -> int:
        """How many experts all layers have together."""
        if self.each:
            return sum(layer.mixture.count for layer in self.each if layer.mixture is not None)
        return 0 if self.mixture is None else self.mixture.count * self.layers

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
        if self.told:
            found["model.embed_tokens_per_layer.weight"] = (self.vocab, self.layers * self.told)
            found["model.per_layer_model_projection.weight"] = (self.layers * self.told, self.dim)
            found["model.per_layer_projection_norm.weight"] = (self.told,)
        if not self.tied:
            found["lm_head.weight"] = (self.vocab, self.dim)
        if self.filling is not None and self.filling.learned:
            found["model.mask"] = (self.dim,)
        for number in range(len(self.filling.transfers) if self.filling is not None else 0):
            found[f"model.transfer.{number}.weight"] = (self.dim, self.dim)
            found[f"model.transfer.{number}.bias"] = (self.dim,)
        return found

    def layer_tensors(self, layer: int) -> dict[str, tuple[int, ...]]:
        """Return the name (within its layer) and the shape of every tensor of one layer."""
        norms = ["input_layernorm", "post_attention_layernorm"] if self.pre_norms else ["post_attention_layernorm"]
        if self.post_norms:
            norms += [*(["pre_feedforward_layernorm"] if self.pre_norms else []), "post_feedforward_layernorm"]
        spec = self.stack[layer]
        if not self.post_norms:  # a norm stands before each part that there is
            norms = [name for name, part in zip(norms, (spec.mixer, spec.thinks), strict=False) if part]
        found: dict[str, tuple[int, ...]] = {f"{name}.weight": (self.dim,) for name in norms}
        if self.layer_scalars:
            found["layer_scalar"] = (1,)
        if self.told:
            found["per_layer_input_gate.weight"] = (self.told, self.dim)
            found["per_layer_projection.weight"] = (self.dim, self.told)
            found["post_per_layer_input_norm.weight"] = (self.dim,)
        return found | spec.tensors(self.dim, self.mlp_bias)

    @cached_property
    def stack(self) -> tuple[LayerSpec, ...]:
        """What every layer is, the first first."""
        return self.each or tuple(self._layer(number) for number in range(self.layers))

    @property
    def rope(self) -> RopeSpec:
        """How layers turn that see all tokens."""
        return RopeSpec(self.rope_theta, self.rotary, self.rope_scaling)

    def attention(self, window: int | None = None) -> AttentionSpec:
        """The attention that these fields tell of, for a layer that sees so many tokens."""
        local = self.local_rope_theta if window is not None else None
        return AttentionSpec(
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            scale=self.query_scale,
            rope=self.rope if local is None else RopeSpec(local, self.rotary),
            window=window,
            qkv_bias=self.qkv_bias,
            out_bias=self.out_bias,
            qk_norm="head" if self.qk_norm else None,
        )

    def _layer(self, number: int) -> LayerSpec:
        mixture = self.mixture if self.mixture is not None and number >= self.mixture.dense else None
        return LayerSpec(self.attention(self.windows[number]), self.hidden, mixture)

    @cached_property
    def oddities(self) -> tuple[str, ...]:
        """What kernels for the plain Llama family may not know of it, in words."""
        mixers = self.attentions
        told = (
            (any(layer.mixture is not None for layer in self.stack), "experts"),
            (not self.pre_norms, "layers that norm only what leaves them"),
            (self.residual_scale != 1 or self.layer_scalars, "a scaled residual stream"),
            (self.told > 0, "embeddings for every layer"),
            (self.logit_scale != 1 or self.logit_softcap is not None, "scaled or capped logits"),
            (self.activation == "clamped_swish", "a clamped activation"),
            (self.filling is not None and bool(self.filling.transfers), "states that are handed to masks"),
            (differing(mixers), "layers of different heads"),
            (len({layer.hidden for layer in self.stack}) > 1, "perceptrons of different widths"),
            (len({mixer.rope and mixer.rope.width for mixer in mixers}) > 1, "layers that turn differently much"),
        )
        found = [what for has, what in told if has]
        found += [what for layer in self.stack if layer.mixer is not None for what in layer.mixer.oddities()]
        found += ["layers without a mixer or perceptron" for layer in self.stack if not (layer.mixer and layer.thinks)]
        return tuple(dict.fromkeys(found))

    def oddity(self, *known: str) -> str | None:
        """The same as a phrase, without what is known; None if nothing is left."""
        return " and ".join(what for what in self.oddities if what not in known) or None

    @property
    def attentions(self) -> tuple[AttentionSpec, ...]:
        """Those of its layers that attend to keys and values of every head."""
        return tuple(layer.mixer for layer in self.stack if isinstance(layer.mixer, AttentionSpec))

    def part(self, layers: Sequence[int]) -> Shape:
        """The same with these of its layers alone."""
        each = tuple(self.each[i] for i in layers) if self.each else ()
        if self.told or any(isinstance(x.mixer, AttentionSpec) and x.mixer.keys_of is not None for x in each):
            raise BadModel(
                f"This {self.family} model has layers that need one another or their own vectors; none can be left out."
            )
        return replace(self, layers=len(layers), windows=tuple(self.windows[i] for i in layers), each=each)

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
        beside = ("model.mask", "model.transfer.")
        return sum(prod(size) for name, size in self.tensors().items() if not name.startswith(beside))

    def kv_bytes(self, dtype: torch.dtype) -> int:
        """Return the bytes of keys and values that one token leaves in the cache."""
        return sum(layer.mixer.cached for layer in self.stack if layer.mixer is not None) * dtype.itemsize

    @cached_property
    def recurrent(self) -> tuple[RecurrentSpec, ...]:
        """Those of its layers that carry a state from token to token."""
        mixers = (layer.mixer for layer in self.stack)
        return tuple(mixer for mixer in mixers if mixer is not None and mixer.kind == "recurrent")

    def state_bytes(self, dtype: torch.dtype) -> int:
        """Return the bytes of one checkpoint: what a token leaves to those that follow it in recurrent layers."""
        return sum(mixer.state_bytes(self.dim, dtype.itemsize) for mixer in self.recurrent)
