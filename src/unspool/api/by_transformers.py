"""Models that transformers loads and computes: by name, or as somebody has loaded them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .. import api, runtime
from ..core.errors import BadRequest
from ..models.address import path
from ..runtime.cache.cached_model import CachedModel
from ..runtime.engine.contracts import Causal
from .lm import LM


def named(name: str | Path, dtype: torch.dtype, device: str, room: int | None, longest: int) -> LM:
    """The model as transformers loads and computes it."""
    source = str(path(str(name)))
    if source.endswith(".safetensors"):
        raise BadRequest(f"{name} is read by the native runtime alone; transformers opens folders and .gguf files.")
    model = runtime.hf.load.load_hf(source, dtype, device, room, api.native_models.PREFIX_CACHE, longest)
    words = runtime.hf.load.hf_vocabulary(source, model.vocab)
    return LM(str(name), model, words, key=api.loader.key_of(source, dtype, device, api.loader.TRANSFORMERS))


def given(model: Any, tokenizer: Any, dtype: str, device: str, room: int | None, longest: int) -> LM:
    """A model that somebody has loaded with transformers."""
    called = str(getattr(getattr(model, "config", None), "name_or_path", "") or type(model).__name__)
    if tokenizer is None or not hasattr(model, "config"):
        raise BadRequest(
            f"load was given a {type(model).__name__} {'alone' if tokenizer is None else 'without a config'}; expected "
            "a causal model of transformers and its tokenizer: load(model, tokenizer)"
        )
    where = None if device == "auto" else api.loader.device_of(device)
    kind = None if dtype == "auto" else api.loader.dtype_of(dtype, where or str(model.device))
    found = runtime.hf.load.load_hf(model, kind, where, room, api.native_models.PREFIX_CACHE, longest)
    words = runtime.hf.load.hf_vocabulary(tokenizer, found.vocab)
    return LM(
        called, found, words, key=api.loader.key_of(called, model.dtype, str(model.device), api.loader.TRANSFORMERS)
    )


def cost(model: Causal) -> str:
    """What there is to know of a model that cannot be cached."""
    if isinstance(model, CachedModel):
        return ""
    return " Its cache cannot be used for drafts, so every step reads the whole text: expect it to be slow."
