"""What fixes one layer of a decoder: how its tokens gather from those before them, and what it makes of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Literal

from ..core.errors import BadModel

if TYPE_CHECKING:
    from .mixer_shape import LatentSpec, RecurrentSpec  # of some families alone

RopeKind = Literal["linear", "dynamic", "llama3", "yarn", "longrope"]
Activation = Literal["silu", "gelu_tanh", "clamped_swish", "relu2"]
HeadNorm = Literal["head", "all", "unit"]
Scores = Literal["sigmoid", "softmax"]
BESIDE_NORMS = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
TURNS_IN_PART = "heads that turn in part"
MOST_EXPERTS = 4096


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
class RopeSpec:
    """How queries and keys turn with their place: the first `width` numbers of a head, pair i by theta^(−2i/width).

    `scaling` stretches it. Of the pairs only the first `pairs` turn (0: all).
    """

    theta: float
    width: int
    scaling: RopeScaling | None = None
    pairs: int = 0

    def __post_init__(self) -> None:
        kind = None if self.scaling is None else self.scaling.kind
        problems = (
            (kind == "dynamic" and self.width < 4, f"a stretched base needs two pairs or more, and {self.width} turn"),
            (kind == "yarn" and self.theta == 1, "all pairs turn equally fast (rope_theta is 1), which YaRN parts"),
            (
                kind == "longrope" and self.scaling is not None and self.scaling.original_context < 2,
                "the context of pre-training has one token",
            ),
        )
        for wrong, problem in problems:
            if wrong:
                raise BadModel(f"These rotary embeddings cannot be built: {problem}. Their configuration is damaged.")


@dataclass(frozen=True)
class AttentionSpec:
    """Attention of `heads` queries on `kv_heads` keys and values; `scale` multiplies q·k.

    A token sees the last `window` tokens, itself included (None: all); if `chunked`, those of its own stretch of
    `window` places, counted from the first. Without `rope` places are not told (NoPE). Queries and keys are normed
    before they turn, each head by itself ("head") or all heads as one vector ("all"), or after it, without factors
    ("unit"); values are too if `value_norm`. Scores x become softcap·tanh(x/softcap). `sinks` are scores of nothing,
    one a head, which take their part of the softmax. If `gated`, what was gathered is multiplied by sigmoid(gate(x)),
    the gate lying beside the queries of its head. A query at place p is multiplied by 1 + b·log(1 + ⌊(p + o)/n⌋) where
    `tempered` is (b, n, o). `keys_of` is the layer whose keys and values it reads, None if it has its own;
    `values_are_keys` if values are the keys before norm and turn.
    """

    kind: ClassVar[Literal["attention"]] = "attention"
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: RopeSpec | None = None
    window: int | None = None
    chunked: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: HeadNorm | None = None
    value_norm: bool = False
    softcap: float | None = None
    sinks: bool = False
    gated: bool = False
    tempered: tuple[float, int, int] | None = None
    keys_of: int | None = None
    values_are_keys: bool = False

    def tensors(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Return the name (within its layer) and the shape of every tensor of it."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        rows = {"q": q * (2 if self.gated else 1)}
        if self.keys_of is None:
            rows |= {"k": kv} if self.values_are_keys else {"k": kv, "v": kv}
        found: dict[str, tuple[int, ...]] = {}
        for part, count in rows.items():
            found[f"self_attn.{part}_proj.weight"] = (count, dim)
            if self.qkv_bias:
                found[f"self_attn.{part}_proj.bias"] = (count,)
        found["self_attn.o_proj.weight"] = (dim, q)
        if self.out_bias:
            found["self_attn.o_proj.bias"] = (dim,)
        if self.qk_norm in ("head", "all"):
            alone = self.qk_norm == "head"
            found["self_attn.q_norm.weight"] = (self.head_dim if alone else q,)
            if self.keys_of is None:
                found["self_attn.k_norm.weight"] = (self.head_dim if alone else kv,)
        if self.sinks:
            found["self_attn.sinks"] = (self.heads,)
        return found

    @property
    def cached(self) -> int:
        """How many numbers a token leaves in the cache."""
        return 2 * self.kv_heads * self.head_dim if self.keys_of is None else 0

    def oddities(self) -> Iterator[str]:
        """What it has that kernels for the Llama family do not know, in words."""
        told = (
            (self.rope is None, "a layer that is not told places (NoPE)"),
            (self.rope is not None and self.rope.width != self.head_dim, TURNS_IN_PART),
            (self.chunked, "attention in chunks"),
            (self.qk_norm in ("all", "unit"), "norms over all heads or without factors"),
            (self.value_norm, "normed values"),
            (self.softcap is not None, "capped scores"),
            (self.sinks, "attention sinks"),
            (self.gated, "an output gate"),
            (self.tempered is not None, "queries that grow with their place"),
            (self.keys_of is not None or self.values_are_keys, "shared keys and values"),
        )
        return (what for has, what in told if has)


@dataclass(frozen=True)
class ExpertSpec:
    """What fixes a layer whose perceptron is split into `count` experts, of which a token uses `active`.

    `scores` is the function that the router's numbers go through. The experts stand in `groups` of neighbours, of which
    a token may use `open` ones. A bias per expert, if `biased`, moves the choice and never the weights; these are
    divided by their sum if `normed`, and multiplied by `scale`. If `weigh_inputs`, they multiply what enters an expert
    and not what leaves it. The expert that every token uses has a hidden width of `shared`, 0 if there is none, and is
    multiplied by a sigmoid of its own if `shared_gate`; the others have `hidden`. `router_bias` and `expert_bias` say
    whether the matrices have one. If they stand `beside` a perceptron, both have norms of their own, the router has
    factors for what it reads, and every expert one for its weight. The first `dense` layers keep their one perceptron.
    `runtime.network.experts` has the formula.
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
    scores: Scores = "sigmoid"
    weigh_inputs: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    beside: bool = False
    gated: bool = True

    def __post_init__(self) -> None:
        each = self.count // self.groups
        problems = (
            (self.count > MOST_EXPERTS, f"{self.count} experts, where a layer may have {MOST_EXPERTS}"),
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
        if self.router_bias:
            found["gate.bias"] = (self.count,)
        if self.biased:
            found["gate.expert_bias"] = (self.count,)
        if self.beside:
            found |= {"gate.scale": (dim,), "gate.expert_scale": (self.count,)}
        widths = {f"experts.{number}": self.hidden for number in range(self.count)}
        if self.shared:
            widths["shared_experts"] = self.shared
        for name, hidden in widths.items():
            found.update(perceptron(name, dim, hidden, self.expert_bias and name != "shared_experts", self.gated))
        if self.shared_gate:
            found["shared_gate.weight"] = (1, dim)
        return found

    def width(self, dim: int) -> int:
        """How many numbers a token has at the widest place: what goes to its experts, comes from them and is summed."""
        return 3 * self.active * dim + 2 * max(self.hidden, self.shared)


@dataclass(frozen=True)
class LayerSpec:
    """One layer: its `mixer`, and a perceptron of width `hidden` or, if there is a `mixture`, experts in its place.

    Either may be missing: the mixer is None then, or `hidden` 0. A perceptron has no gate if it is not `gated`.
    """

    mixer: AttentionSpec | RecurrentSpec | LatentSpec | None
    hidden: int
    mixture: ExpertSpec | None = None
    gated: bool = True

    def tensors(self, dim: int, bias: bool) -> dict[str, tuple[int, ...]]:
        """Return the name (within the layer) and the shape of every tensor but its norms."""
        found = {} if self.mixer is None else self.mixer.tensors(dim)
        if self.mixture is not None:
            found |= {f"mlp.{name}": size for name, size in self.mixture.tensors(dim).items()}
            if self.mixture.beside:
                found |= {f"{norm}.weight": (dim,) for norm in BESIDE_NORMS}
        if self.hidden and (self.mixture is None or self.mixture.beside):
            found |= perceptron("mlp", dim, self.hidden, bias, self.gated)
        return found

    @property
    def thinks(self) -> bool:
        """Whether it has a perceptron or experts."""
        return self.hidden > 0 or self.mixture is not None


def perceptron(at: str, dim: int, hidden: int, bias: bool, gated: bool = True) -> dict[str, tuple[int, ...]]:
    """The name and the shape of every tensor of a perceptron."""
    found: dict[str, tuple[int, ...]] = {}
    for part, rows, columns in (("gate", hidden, dim), ("up", hidden, dim), ("down", dim, hidden))[not gated :]:
        found[f"{at}.{part}_proj.weight"] = (rows, columns)
        if bias:
            found[f"{at}.{part}_proj.bias"] = (rows,)
    return found


def differing(specs: tuple[AttentionSpec, ...], but: tuple[str, ...] = ("window", "rope")) -> bool:
    """Whether layers differ in more than these."""
    names = [field.name for field in fields(AttentionSpec) if field.name not in but]
    return len({tuple(getattr(spec, name) for name in names) for spec in specs}) > 1
