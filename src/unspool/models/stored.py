"""Where the safetensors files of a family keep a tensor: under another name, or as a part of a larger one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from .shape import Shape

_EXPERT = re.compile(r"(.*\.)mlp\.experts\.(\d+)\.(gate|up|down)_proj\.(weight|bias)")


class Stored(NamedTuple):
    """The name that a file has for a tensor, and where in that it lies: what follows is done in this order.

    If there are `experts`, the file's first dimension counts them, and `expert` is taken. If it is `turned`, the file
    has columns first. Where several tensors lie on top of each other, `rows` are taken of the `total`.
    """

    name: str
    rows: slice | None = None
    total: int = 0
    expert: int | None = None
    experts: int = 0
    turned: bool = False

    def whole(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what the file has under that name, for a tensor of this shape."""
        size = size if self.rows is None else (self.total, *size[1:])
        size = size[::-1] if self.turned else size
        return size if self.expert is None else (self.experts, *size)

    def as_it_lies(self, size: tuple[int, ...], found: tuple[int, ...] | None) -> Stored:
        """The same, turned if that is how the file has it: libraries have written experts both ways."""
        other = self._replace(turned=not self.turned)
        return other if found not in (None, self.whole(size)) and found == other.whole(size) else self

    def of(self, found: Tensor) -> Tensor:
        """The tensor itself, of what the file has (of that expert, where there are several)."""
        found = found.mT if self.turned and found.dim() > 1 else found
        return found if self.rows is None else found[self.rows]


@dataclass(frozen=True)
class Names:
    """What a family's files call things otherwise.

    `renamed` are pieces of names, ours and theirs. `qkv` and `gate_up` are the matrices in which queries, keys and
    values, or gate and up, lie on top of each other; `shared` and `experts` the same for experts, the latter with that
    of down, for all experts of a layer in one tensor. `biases` are those of `experts`. If `woven`, rows of gate and up
    alternate; if `turned`, columns come first.
    """

    renamed: tuple[tuple[str, str], ...] = ()
    qkv: str | None = None
    gate_up: str | None = None
    shared: str | None = None
    experts: tuple[str, str] | None = None
    biases: tuple[str, str] = ("", "")
    woven: bool = False
    turned: bool = False


_GRANITE = Names(
    renamed=(
        ("mlp.gate.", "block_sparse_moe.router.layer."),
        ("mlp.shared_experts.down_proj", "shared_mlp.output_linear"),
    ),
    shared="shared_mlp.input_linear",
    experts=("block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"),
)
_GLM_NORMS = (
    ("post_attention_layernorm", "post_self_attn_layernorm"),
    ("pre_feedforward_layernorm", "post_attention_layernorm"),
    ("post_feedforward_layernorm", "post_mlp_layernorm"),
)
_LFM2 = Names(
    (
        ("model.norm.", "model.embedding_norm."),
        ("input_layernorm", "operator_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.o_proj", "self_attn.out_proj"),
        ("q_norm", "q_layernorm"),
        ("k_norm", "k_layernorm"),
        ("mlp.gate.expert_bias", "feed_forward.expert_bias"),
        ("mlp.", "feed_forward."),
        ("gate_proj", "w1"),
        ("up_proj", "w3"),
        ("down_proj", "w2"),
    )
)
_QWEN = Names((("mlp.shared_experts.", "mlp.shared_expert."), ("mlp.shared_gate.", "mlp.shared_expert_gate.")))
_CHOICE = (("gate.expert_bias", "gate.e_score_correction_bias"),)
_NEMOTRON = Names(
    (
        ("model.embed_tokens.", "backbone.embeddings."),
        ("model.norm.", "backbone.norm_f."),
        ("model.", "backbone."),
        ("input_layernorm", "norm"),
        ("post_attention_layernorm", "norm"),
        ("self_attn.", "mixer."),
        ("mamba.", "mixer."),
        ("mlp.", "mixer."),
        *_CHOICE,
    )
)
NAMES: Mapping[str, Names] = {
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
    "qwen3_next": _QWEN,
    "qwen3_5_text": _QWEN,
    "qwen3_5_moe_text": _QWEN,
    "nemotron_h": _NEMOTRON,
    "deepseek_v3": Names(_CHOICE),
    "glm4_moe_lite": Names(_CHOICE),
    "granitemoehybrid": replace(
        _GRANITE,
        renamed=(*_GRANITE.renamed, ("mlp.down_proj", "shared_mlp.output_linear")),
        gate_up="shared_mlp.input_linear",
    ),
    "qwen3_vl_moe_text": Names(experts=("mlp.experts.gate_up_proj", "mlp.experts.down_proj")),
    "qwen2_moe": _QWEN,
    "glm4_moe": Names(_CHOICE),
    "mixtral": Names(
        (
            ("mlp.", "block_sparse_moe."),
            (".gate_proj.", ".w1."),
            (".up_proj.", ".w3."),
            (".down_proj.", ".w2."),
        )
    ),
    "phi3": Names(qkv="self_attn.qkv_proj", gate_up="mlp.gate_up_proj"),
    "glm": Names(gate_up="mlp.gate_up_proj"),
    "glm4": Names(_GLM_NORMS, gate_up="mlp.gate_up_proj"),
    "granitemoe": _GRANITE,
    "granitemoeshared": _GRANITE,
    "gpt_oss": Names(
        (("mlp.gate.", "mlp.router."),),
        experts=("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
        biases=("mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"),
        woven=True,
        turned=True,
    ),
    "gemma4_text": Names(
        (
            ("mlp.gate.weight", "router.proj.weight"),
            ("mlp.gate.scale", "router.scale"),
            ("mlp.gate.expert_scale", "router.per_expert_scale"),
        ),
        experts=("experts.gate_up_proj", "experts.down_proj"),
    ),
    "llama4_text": Names(
        (
            ("mlp.gate.", "feed_forward.router."),
            ("mlp.shared_experts.", "feed_forward.shared_expert."),
            ("mlp.", "feed_forward."),
        ),
        experts=("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"),
        turned=True,
    ),
}


def stored(name: str, size: tuple[int, ...], shape: Shape) -> Stored:
    """Where the files of a shape's family keep a tensor of this size."""
    names = NAMES.get(shape.family)
    if names is None:
        return Stored(name)
    expert = _EXPERT.fullmatch(name)
    if expert is not None and names.experts is not None:
        return _of_all_experts(names, size, shape, *expert.groups())
    part, ending = name.rsplit(".", 1)
    for fused, at, parts in (
        (names.qkv, "self_attn.", ("q_proj", "k_proj", "v_proj")),
        (names.shared, "mlp.shared_experts.", ("gate_proj", "up_proj")),
        (names.gate_up, "mlp.", ("gate_proj", "up_proj")),
    ):
        own = next((i for i, piece in enumerate(parts) if part.endswith(at + piece)), None)
        if fused is not None and own is not None:
            rows = _heights(shape) if len(parts) == 3 else (size[0], size[0])
            start = sum(rows[:own])
            before = part.removesuffix(at + parts[own])
            return Stored(f"{before}{fused}.{ending}", slice(start, start + size[0]), sum(rows))
    for ours, theirs in names.renamed:
        if ours in name:
            name = name.replace(ours, theirs)
            if names.renamed is _GLM_NORMS:
                break
    return Stored(name)


def _heights(shape: Shape) -> tuple[int, int, int]:
    return shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.kv_heads * shape.head_dim


def _of_all_experts(
    names: Names, size: tuple[int, ...], shape: Shape, before: str, number: str, part: str, ending: str
) -> Stored:
    assert names.experts is not None
    assert shape.mixture is not None
    gate_up, down = names.experts if ending == "weight" else names.biases
    rows, total, height = None, 0, size[0]
    if part != "down":
        second = part == "up"
        total = 2 * height
        rows = slice(int(second), total, 2) if names.woven else slice(second * height, (second + 1) * height)
    at = before + (down if part == "down" else gate_up)
    return Stored(at, rows, total, int(number), shape.mixture.count, names.turned and ending == "weight")
