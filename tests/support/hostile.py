"""A little model whose tokens are markup, for tests of what shows a model's text."""

from __future__ import annotations

import json

import torch
from littlemodel import CONFIG, little_model
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers

HOSTILE = (
    "<img src=x onerror=document.title='caught'>",
    "<script>document.title='caught'</script>",
    "</script><script>document.title='caught'</script>",
    "<!--<script>",
    "'\"><svg onload=document.title='caught'>",
    "\u2028&lt;b&gt;\n<b>bold</b>",
    "{{7*7}}${7*7}",
    "\u202e<a href='javascript:alert(1)'>",
)


def hostile_model(folder):
    """The little model with tokens that are markup, and a taste for them."""
    made = little_model(folder)
    tokenizer = json.loads((made / "tokenizer.json").read_text())
    letters = {byte: letter for letter, byte in _bytes().items()}
    first = len(tokenizer["model"]["vocab"])
    for number, text in enumerate(HOSTILE):
        tokenizer["model"]["vocab"]["".join(letters[byte] for byte in text.encode())] = first + number
    (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    tensors = load_file(made / "model.safetensors")
    dice = torch.Generator().manual_seed(1)
    known = tensors["model.embed_tokens.weight"]
    more = torch.randn((len(HOSTILE), known.shape[1]), generator=dice) * 0.3
    tensors["model.embed_tokens.weight"] = torch.cat((known, more))
    tensors["lm_head.weight"] = torch.cat((known, 8 * more))
    tensors["lm_head.weight"][1] = 0  # it does not end by itself
    save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
    size = {"vocab_size": first + len(HOSTILE), "bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": False}
    (made / "config.json").write_text(json.dumps({**CONFIG, **size}))
    return made


def _bytes():
    """The letters by which byte-level vocabularies write bytes."""
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    hidden = [b for b in range(256) if b not in shown]
    table = {chr(b): b for b in shown} | {chr(256 + n): b for n, b in enumerate(hidden)}
    assert set(table) == set(pre_tokenizers.ByteLevel.alphabet())
    return table
