"""A folder with a little Llama over bytes, random but always the same, for tests of whole commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from unspool import LM, load

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}


@contextmanager
def loaded(folder: Path, **options: Any) -> Iterator[LM]:
    """The model on one thread: more would only wait for each other over so small a one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load(folder, **options)
    torch.set_num_threads(threads)


TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "


def chatting_model(folder: Path) -> Path:
    """Write it with a chat template."""
    made = little_model(folder) / "tokenizer_config.json"
    made.write_text(json.dumps({**json.loads(made.read_text()), "chat_template": TEMPLATE}))
    return folder


def little_model(folder: Path, layers: int = 2) -> Path:
    """Write it."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = {"<s>": 0, "</s>": 1} | {c: i + 2 for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    config = {**CONFIG, "num_hidden_layers": layers, "vocab_size": len(letters), "bos_token_id": 0, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config))
    dice = torch.Generator().manual_seed(0)
    sizes = {"model.embed_tokens.weight": (len(letters), 32), "model.norm.weight": (32,)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        sizes |= {f"{at}.{name}_layernorm.weight": (32,) for name in ("input", "post_attention")}
        sizes |= {f"{at}.self_attn.{n}_proj.weight": (r, 32) for n, r in (("q", 32), ("k", 16), ("v", 16), ("o", 32))}
        sizes |= {f"{at}.mlp.{n}_proj.weight": (64, 32) for n in ("gate", "up")} | {
            f"{at}.mlp.down_proj.weight": (32, 64)
        }
    tensors = {
        name: torch.ones(size) if len(size) == 1 else torch.randn(size, generator=dice) * 0.3
        for name, size in sizes.items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
