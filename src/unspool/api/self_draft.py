"""Shortcuts: cheaper models made of a model itself, which draft for it and need no weights of their own."""

from __future__ import annotations

import importlib.util
import re

from .. import runtime
from ..core.errors import BadRequest
from ..runtime.cache.cached_model import CachedModel
from ..runtime.network.llama import Llama
from .lm import LM

LAYERS = "layers:"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def is_shortcut(name: str) -> bool:
    """Whether the name of a draft model says how to make it of the model."""
    return name.startswith(LAYERS)


def shortcut(lm: LM, spec: str) -> LM:
    """The model with some of its layers: `layers:12` has the first 12, `layers:0-9,20-29` those of the ranges.

    The first few with the model's own last norm and head are an early exit, as LayerSkip drafts with; some left out in
    the middle is how Draft&Verify drafts, there by halves of layers. Both papers reuse what the model has computed;
    here the draft has a cache of its own and the model computes all its layers again, which costs no forward more.
    Weights are shared. How well it drafts depends on the model: one that was not trained for it seldom pays.

    Cost: a share of a forward that is that of its layers, and the head; keys and values of its layers.
    """
    model = lm.model
    if not isinstance(model, CachedModel) or not isinstance(model.network, Llama) or model.network.shape.filling:
        raise BadRequest(
            f"{lm.name} cannot draft for itself by {spec}: that needs the native runtime and one that reads."
        )
    layers = layers_of(spec, model.network.layers)
    part = model.network.part(layers)
    kept = model.prefix_cache
    on_gpu = part.ends.device.type == "cuda" and importlib.util.find_spec("triton") is not None
    if on_gpu and isinstance(part, runtime.cuda.fused.Fused):
        made = runtime.cuda.graph_model.graph_model(part, kept)
    else:
        made = CachedModel(part, kept)
    return LM(f"{lm.name} ({spec})", made, lm.vocabulary, key=None if lm.key is None else f"{lm.key} · {spec}")


def layers_of(spec: str, count: int) -> tuple[int, ...]:
    """The numbers of the layers that a shortcut names, of so many."""
    asked = spec.removeprefix(LAYERS)
    if asked.isdecimal():
        chosen = list(range(min(int(asked), count + 1)))
    else:
        ranges = [_RANGE.fullmatch(part.strip()) for part in asked.split(",")]
        if None in ranges:
            raise BadRequest(
                f"{spec!r} names no layers; expected how many of the first, as in layers:12, or layers:0-9,20-29"
            )
        ends = [(int(found[1]), int(found[2] or found[1])) for found in ranges if found]
        chosen = [x for low, high in ends for x in range(low, min(high, count) + 1)]
    if not chosen or chosen != sorted(set(chosen)) or chosen[-1] >= count:
        raise BadRequest(
            f"{spec!r} does not fit: expected layers 0 to {count - 1}, at least one, each once and in order"
        )
    return tuple(chosen)
