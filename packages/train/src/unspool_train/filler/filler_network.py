"""The small model while it is trained: Llama's layers over whole texts, which see all of it or what comes before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from unspool.core.errors import BadModel
from unspool.models.fillers import stored_name
from unspool.models.weights import open_checkpoint

from ..training_network import normed, turned
from .texts import BEGIN, END, MASK

THETA, EPS = 10_000.0, 1e-5
PLACES = 1024  # that a model may be asked about, though few were trained


@dataclass(frozen=True)
class FillerSize:
    """How large a model is."""

    vocab: int
    width: int
    layers: int
    heads: int

    @property
    def hidden(self) -> int:
        """Units of a perceptron."""
        return 8 * self.width // 3 // 8 * 8

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, by the name that Llama's files have for it."""
        width, hidden = self.width, self.hidden
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, width)}
        for layer in range(self.layers):
            at = f"model.layers.{layer}"
            found |= {f"{at}.{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
            found |= {f"{at}.self_attn.{name}_proj.weight": (width, width) for name in "qkvo"}
            found |= {f"{at}.mlp.{name}_proj.weight": (hidden, width) for name in ("gate", "up")}
            found[f"{at}.mlp.down_proj.weight"] = (width, hidden)
        return found | {"model.norm.weight": (width,), "lm_head.weight": (self.vocab, width)}


class SmallNetwork(nn.Module):
    """A bidirectional or, if `causal`, a left-to-right transformer of Llama's layers."""

    def __init__(self, size: FillerSize, causal: bool = False) -> None:
        super().__init__()
        self.size, self.causal = size, causal
        self.named = {name: nn.Parameter(_first(name, shape, size)) for name, shape in size.tensors().items()}
        for number, parameter in enumerate(self.named.values()):
            self.register_parameter(f"p{number}", parameter)

    def forward(self, tokens: Tensor, seen: Tensor | None = None) -> Tensor:
        """The logits at every place [texts, places, vocab]; `seen` is False at places that nobody sees."""
        size, w = self.size, self.named
        width = size.width // size.heads
        angle = torch.arange(tokens.shape[1]).float()[:, None] * THETA ** (-torch.arange(0, width, 2) / width)
        cos, sin = angle.cos()[None, None], angle.sin()[None, None]
        mask = None if seen is None else seen[:, None, None]
        x = w["model.embed_tokens.weight"][tokens]
        for layer in range(size.layers):
            at = f"model.layers.{layer}"
            h = normed(x, w[f"{at}.input_layernorm.weight"], EPS)
            parts = (h @ w[f"{at}.self_attn.{name}_proj.weight"].T for name in "qkv")
            q, k, v = (part.view(*tokens.shape, size.heads, width).transpose(1, 2) for part in parts)
            mixed = functional.scaled_dot_product_attention(
                turned(q, cos, sin), turned(k, cos, sin), v, mask, is_causal=self.causal
            )
            x = x + mixed.transpose(1, 2).flatten(2) @ w[f"{at}.self_attn.o_proj.weight"].T
            h = normed(x, w[f"{at}.post_attention_layernorm.weight"], EPS)
            gate = functional.silu(h @ w[f"{at}.mlp.gate_proj.weight"].T)
            x = x + (gate * (h @ w[f"{at}.mlp.up_proj.weight"].T)) @ w[f"{at}.mlp.down_proj.weight"].T
        logits: Tensor = normed(x, w["model.norm.weight"], EPS) @ w["lm_head.weight"].T
        return logits

    def take(self, folder: str) -> None:
        """Go on from the weights of a folder of the same size, whichever way it was trained."""
        checkpoint = open_checkpoint(Path(folder).expanduser())
        shape = checkpoint.shape
        if (shape.vocab, shape.dim, shape.layers, shape.heads) != (
            self.size.vocab,
            self.size.width,
            self.size.layers,
            self.size.heads,
        ):
            raise BadModel(f"{folder}: is a model of another size; expected {self.size}.")
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(checkpoint.tensor(name))


def _first(name: str, shape: tuple[int, ...], size: FillerSize) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape)
    deep = name.endswith(("o_proj.weight", "down_proj.weight"))  # what is added to the stream
    return torch.randn(shape) * (0.02 if "embed" in name else (1 / shape[1]) ** 0.5 / (2 * size.layers if deep else 1))


def write_folder(folder: Path, network: SmallNetwork, tokenizer: Tokenizer, told: Mapping[str, Any]) -> None:
    """Write it as a LLaDA-style folder, or as a Llama if it reads from left to right; `told` is what made it."""
    folder.mkdir(parents=True, exist_ok=True)
    size = network.size
    family = "llama" if network.causal else "llada"
    tensors = {stored_name(name, family): p.detach().contiguous() for name, p in network.named.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config: dict[str, Any] = {"model_type": family, "rope_theta": THETA, "rms_norm_eps": EPS}
    config |= {"bos_token_id": BEGIN, "eos_token_id": END}
    if network.causal:
        config |= {"hidden_size": size.width, "num_hidden_layers": size.layers, "num_attention_heads": size.heads}
        config |= {"intermediate_size": size.hidden, "vocab_size": size.vocab, "max_position_embeddings": PLACES}
        config |= {"tie_word_embeddings": False, "hidden_act": "silu"}
    else:
        config |= {"d_model": size.width, "n_layers": size.layers, "n_heads": size.heads, "n_kv_heads": size.heads}
        config |= {"mlp_hidden_size": size.hidden, "embedding_size": size.vocab, "vocab_size": size.vocab}
        config |= {"max_sequence_length": PLACES, "weight_tying": False, "activation_type": "silu"}
        config |= {"mask_token_id": MASK}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    (folder / "trained.json").write_text(json.dumps(dict(told)))
