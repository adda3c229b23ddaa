"""Tree masks in the forms that model families of the transformers library take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .hf_network import TreeMask

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


@dataclass(frozen=True)
class OneMask:
    """The same mask for every layer, cut to what a layer of this kind reaches."""

    config: Any
    kind: str

    def __call__(self, seen: Tensor, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
        """An additive mask [1, 1, queries, keys], which both eager and SDPA attention take."""
        return additive(reach(self.config, self.kind, seen, queries, keys), dtype)


@dataclass(frozen=True)
class MaskByKind:
    """One mask per kind of layer, in a dict."""

    config: Any
    kinds: tuple[str, ...]

    def __call__(self, seen: Tensor, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        return {kind: additive(reach(self.config, kind, seen, queries, keys), dtype) for kind in self.kinds}


def reach(config: Any, kind: str, seen: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """What is seen and within reach: the last `sliding_window` positions, or the chunk the query stands in."""
    # Read from the config at every call, as the model does: the probe narrows them for a moment.
    if kind == SLIDING:
        window: int = config.sliding_window
        return seen & (queries[:, None] - keys < window)
    if kind == CHUNKED:
        size: int = config.attention_chunk_size
        return seen & (queries[:, None] // size == keys // size)
    return seen


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where something is seen, the lowest number where not."""
    blank = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return blank.masked_fill(~seen, torch.finfo(dtype).min)[None, None]


def likely_masks(config: Any) -> list[TreeMask]:
    """The forms a model with this config may take, the likeliest first; which one is right has to be measured."""
    kinds = set(getattr(config, "layer_types", None) or ())
    known = tuple(kind for kind in (FULL, SLIDING, CHUNKED) if kind in kinds)
    windowed = isinstance(getattr(config, "sliding_window", None), int)
    masks: list[TreeMask] = []
    if known:
        masks.append(MaskByKind(config, known))
    if windowed:
        masks.append(OneMask(config, SLIDING))
    masks.append(OneMask(config, FULL))
    # A model of one kind seldom wants a dict.
    return masks if len(known) != 1 else [*masks[1:], masks[0]]
