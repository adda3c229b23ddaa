"""Shortcuts: cheaper models made of a model itself, which draft for it and need no weights of their own."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING

from .. import runtime
from ..core.errors import BadRequest
from ..runtime.cache.cached_model import CachedModel
from ..runtime.cache.sorted_exits import EarlyExit, LateExit
from ..runtime.network.llama import Llama
from .lm import LM

if TYPE_CHECKING:
    from ..runtime.cuda.fused import Fused

LAYERS = "layers:"
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


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
    fused = _fused(part)
    made = CachedModel(part, kept) if fused is None else runtime.cuda.graph_model.graph_model(fused, kept)
    return LM(f"{lm.name} ({spec})", made, lm.vocabulary, key=None if lm.key is None else f"{lm.key} · {spec}")


def sorted_exits(lm: LM, later: str, earlier: str) -> tuple[LM, LM] | None:
    """Two exits that share their work: the first layers of one go on from those of the other; None if they cannot.

    The later exit starts from what enters the last layer of the earlier one, so that one layer is computed twice and
    all before it once. Both must be the first layers of a model on the native runtime, outside CUDA graphs.
    """
    model = lm.model
    if not isinstance(model, CachedModel) or not isinstance(model.network, Llama) or _fused(model.network) is not None:
        return None
    network = model.network
    few, more = layers_of(earlier, network.layers), layers_of(later, network.layers)
    sorts = few == tuple(range(len(few))) and more == tuple(range(len(more))) and 1 < len(few) < len(more)
    if not sorts or network.shape.filling or network.shape.recurrent or network.ends.told is not None:
        return None
    early = EarlyExit(network.part(few), model.prefix_cache)
    late = LateExit(early, network, len(more), model.prefix_cache)
    return tuple(  # type: ignore[return-value]
        LM(f"{lm.name} ({spec})", made, lm.vocabulary, key=None if lm.key is None else f"{lm.key} · {spec}")
        for made, spec in ((late, later), (early, earlier))
    )


def _fused(network: Llama) -> Fused | None:
    """The network itself if it runs in CUDA graphs; where there is no Triton, that part is not even imported."""
    on_gpu = network.ends.device.type == "cuda" and importlib.util.find_spec("triton") is not None
    return network if on_gpu and isinstance(network, runtime.cuda.fused.Fused) else None


def layers_of(spec: str, count: int) -> tuple[int, ...]:
    """The numbers of the layers that a shortcut names, of so many."""
    asked = spec.removeprefix(LAYERS)
    if asked.isascii() and asked.isdecimal():
        chosen = list(range(min(int(asked[:18]), count + 1)))  # Python reads no number of 5000 figures
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
