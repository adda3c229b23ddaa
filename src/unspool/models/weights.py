"""A model on disk: its shape, its vocabulary and its tensors under one set of names, whatever the file format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from .. import models
from ..core.errors import BadModel
from .address import path as located
from .architecture import LONGROPE, PERMUTED
from .config_fields import elsewhere
from .gguf import GGUF
from .gguf_vocabulary import read_vocabulary
from .quant import Format, QuantBlocks
from .shape import Shape
from .stored import Stored, stored
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from .codes import GroupedCodes

_LISTED = 8

_GGUF_OUTSIDE: Mapping[str, str] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_GGUF_LAYER: Mapping[str, str] = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_gate": "ffn_gate_inp_shexp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_GGUF_ODD: Mapping[str, str] = {
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.gate.expert_bias": "exp_probs_b.bias",
}
_FUSED = ("phi3",)  # whose queries, keys and values lie on top of each other, as do gate and up
_IDLE_END = re.compile(r"rot_embd|rope_|\.nextn\.|\.(input_)?scale$")  # what files keep beside the weights
_EXPERT = re.compile(r"mlp\.experts\.(\d+)\.(gate|up|down)_proj")
_GGUF_POST_NORMS: Mapping[str, str] = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class Checkpoint(Protocol):
    """A model that can be loaded: names are those of Hugging Face, rotary halves are split, norms are plain factors."""

    @property
    def shape(self) -> Shape:
        """The numbers that fix the model."""

    @property
    def title(self) -> str:
        """What the model calls itself."""

    @property
    def bytes(self) -> int:
        """The size of the weights on disk."""

    @property
    def rope_factors(self) -> Tensor | None:
        """Divisors of the rotary frequencies [head_dim/2] where the file carries them, else None."""

    def vocabulary(self) -> Vocabulary:
        """Return the model's tokens."""

    def names(self) -> frozenset[str]:
        """Return the names that `tensor` answers to."""

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return one tensor, rounded once to `dtype`; None means as exact as the file has it."""


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open a .gguf file, a .safetensors file, a delta, or a folder; names and shapes of tensors are checked here."""
    path = Path(path)
    if path.is_file() and path.suffix == ".safetensors":
        base = models.delta.base_of(path)
        return (
            models.folder.SafetensorsCheckpoint(path.parent, (path,))
            if base is None
            else models.delta.DeltaCheckpoint(open_checkpoint(located(base)), path)
        )
    if path.is_file():
        return GGUFCheckpoint(path)
    if not path.is_dir():
        raise BadModel(f"{path}: there is no such file or folder. Give a .gguf file, a folder, or a known model name.")
    if (path / "config.json").is_file():
        return models.folder.SafetensorsCheckpoint(path)
    found = sorted(path.glob("*.gguf"))
    if len(found) == 1:
        return GGUFCheckpoint(found[0])
    if (path / "adapter_config.json").is_file():
        raise BadModel(
            f"{path}: is a LoRA adapter, not a model. Load the model that it belongs to, with --adapter {path} "
            "(adapter= in Python)."
        )
    listed = f"{len(found)} .gguf files ({', '.join(file.name for file in found[:_LISTED])})" if found else "no .gguf"
    raise BadModel(
        f"{path}: holds no config.json and {listed}. Name the .gguf file itself, or give a folder with config.json and "
        "*.safetensors."
    )


class GGUFCheckpoint:
    """A model in one GGUF file; quantised tensors are decoded exactly."""

    def __init__(self, path: Path | str) -> None:
        self.file = GGUF(path)
        source, directory = str(path), self.file.directory
        if self.file.metadata.get("split.count", 1) not in (0, 1):
            raise BadModel(f"{source}: is one part of a split model. Merge the parts into one .gguf file first.")
        shape = Shape.from_gguf(self.file.metadata, directory.keys(), source)
        if "token_embd.weight" in directory:
            shape = replace(shape, vocab=directory["token_embd.weight"].shape[0])
        self.shape = self._stretched(shape)
        self._stored = {name: self._lies(name, size) for name, size in shape.tensors().items()}
        sizes = {name: self._size(name) for name, at in self._stored.items() if at.name in directory}
        shape.check(source, sizes)
        used = {at.name for at in self._stored.values()}
        left = sorted(name for name in directory if name not in used)
        ahead = shape.layers if _guesses_ahead(self.file.metadata, shape.family) else 1 << 30
        left = [name for name in left if not _IDLE_END.search(name) and _layer_of(name) < ahead]
        if left:
            count, such = len(left), left[0]
            raise elsewhere(source, f"it has {count} tensors that a {shape.family} model has not, such as {such!r}")

    @property
    def title(self) -> str:
        name = self.file.metadata.get("general.name")
        return name if isinstance(name, str) and name else self.file.path.stem

    @property
    def bytes(self) -> int:
        return self.file.bytes

    @property
    def rope_factors(self) -> Tensor | None:
        """The Llama 3 scaling, which this format stores as a tensor."""
        if "rope_freqs.weight" not in self.file.directory:
            return None
        factors = self.file.tensor("rope_freqs.weight")
        if factors.shape != (self.shape.head_dim // 2,):
            raise BadModel(
                f"{self.file.path}: rope_freqs.weight has shape {tuple(factors.shape)}; expected one per pair."
            )
        return factors

    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    def names(self) -> frozenset[str]:
        return frozenset(self._stored)

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return one tensor, decoded exactly and rounded once to `dtype` (None: float32)."""
        if name not in self._stored:
            raise BadModel(f"{self.file.path}: this {self.shape.family} model has no tensor {name!r}.")
        at = self._stored[name]
        found = self.file.tensor(at.name, dtype or torch.float32, _part(at))
        return self._ordered(name, found.view(self._size(name)))

    def format_of(self, name: str) -> Format:
        """Return how the file stores a tensor."""
        return self.file.entry(self._stored[name].name).format

    def _size(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor as ours are; of those that lie in one, that of each, and a gate's vector is a row."""
        at = self._stored[name]
        size = self.file.entry(at.name).shape
        if at.expert is not None:
            mixture = self.shape.mixture
            return size[1:] if mixture is not None and size[0] == mixture.count else size
        if at.rows is not None:
            return (at.rows.stop - at.rows.start, *size[1:]) if size[0] == at.total else size
        return (1, *size) if len(size) == 1 and ".shared_gate." in name else size

    def packed_bytes(self, name: str) -> int:
        """Return what a tensor takes in memory as the file has it, with float32 for what is not in blocks."""
        entry = self.file.entry(self._stored[name].name)
        whole = entry.bytes if entry.format.size > 1 else 4 * prod(entry.shape)
        return whole * prod(self._size(name)) // prod(entry.shape)

    def blocks(self, name: str) -> QuantBlocks:
        """Return one matrix as the file has it."""
        at, rows = self._stored[name], self._size(name)[0]
        data = self.file.blocks(at.name, _part(at)).view(rows, -1)
        return QuantBlocks(self.file.entry(at.name).format, self._ordered(name, data))

    def codes(self, name: str) -> GroupedCodes | None:
        """Return a matrix as whole numbers of 4 bits; None if the file has it otherwise."""
        if self._stored[name].expert is not None or self.format_of(name).name not in models.codes.FORMATS:
            return None
        return models.codes.codes_of(self.blocks(name))

    def release(self, name: str) -> None:
        """Give back the memory of a tensor's bytes, of which somebody has made a copy."""
        self.file.release(self._stored[name].name)

    def _ordered(self, name: str, rows: Tensor) -> Tensor:
        """Rows of a tensor in our order."""
        if self.shape.family in PERMUTED and ".q_proj." in name:
            return _split_halves(rows, self.shape.heads)
        if self.shape.family in PERMUTED and ".k_proj." in name:
            return _split_halves(rows, self.shape.kv_heads)
        return rows

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return read_vocabulary(self.file.metadata, self.shape.vocab, str(self.file.path))

    def _lies(self, name: str, size: tuple[int, ...]) -> Stored:
        """Where the file has a tensor of this size."""
        if name in _GGUF_OUTSIDE:
            return Stored(_GGUF_OUTSIDE[name])
        at = stored(name, size, self.shape) if self.shape.family in _FUSED else Stored(name)
        _, _, layer, inner = at.name.split(".", 3)
        if inner in _GGUF_ODD:
            return Stored(f"blk.{layer}.{_GGUF_ODD[inner]}")
        part, ending = inner.rsplit(".", 1)
        expert = _EXPERT.fullmatch(part)
        if expert is not None:
            return Stored(f"blk.{layer}.ffn_{expert[2]}_exps.{ending}", expert=int(expert[1]))
        after = self.shape.post_norms or self.shape.family in ("gpt-oss", "glm4moe")
        norms = _GGUF_POST_NORMS if after else {}
        return at._replace(name=f"blk.{layer}.{norms.get(part) or _GGUF_LAYER[part]}.{ending}")

    def _stretched(self, shape: Shape) -> Shape:
        """The shape with the factors of LongRoPE, which this format keeps as tensors beside the layers."""
        if shape.rope_scaling is None or shape.rope_scaling.kind != "longrope":
            return shape
        told: list[tuple[float, ...]] = []
        for name in LONGROPE:
            entry = self.file.entry(name)
            found = self.file.tensor(name) if entry.shape == (shape.rotary // 2,) else torch.zeros(1)
            if not bool((found.isfinite() & (found > 0)).all()):
                raise BadModel(
                    f"{self.file.path}: {name} has shape {entry.shape}; expected {shape.rotary // 2} positive numbers."
                )
            told.append(tuple(found.tolist()))
        return replace(shape, rope_scaling=replace(shape.rope_scaling, short_factors=told[0], long_factors=told[1]))


def _part(at: Stored) -> int | slice | None:
    """Which of the first dimension of what the file has."""
    return at.rows if at.expert is None else at.expert


def _guesses_ahead(metadata: Mapping[str, object], family: str) -> bool:
    """Whether layers behind the last guess further ahead; they are left out."""
    return bool(metadata.get(f"{family}.nextn_predict_layers"))


def _layer_of(name: str) -> int:
    number = name.removeprefix("blk.").partition(".")[0]
    return int(number) if number.isdecimal() and len(number) < 9 else 0


def _split_halves(stored: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's order of rotary rows: pairs (2i, 2i+1) go back to (i, i + head_dim/2)."""
    order = torch.arange(len(stored)).view(heads, -1, 2).transpose(1, 2).reshape(-1)
    return stored.index_select(0, order.to(stored.device))  # whole rows: a transposed copy goes number by number
