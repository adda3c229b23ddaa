"""What layers have beside a plain Llama's: which of it kernels do by themselves, and what slots they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...kernels.gate import GELU, SILU
from ...models.layer_shape import AttentionSpec
from ..network.attention import Turns

if TYPE_CHECKING:
    from ...models.mixer_shape import LatentSpec, RecurrentSpec

GATES = (SILU, GELU)  # activations that kernels have


def unusual(spec: AttentionSpec) -> bool:
    """Whether queries and keys need more on their way into attention than the one kernel for it does."""
    shared = spec.keys_of is not None or spec.values_are_keys
    return shared or spec.gated or spec.value_norm or spec.tempered is not None or spec.qk_norm in ("all", "unit")


def cached(mixer: AttentionSpec | LatentSpec | RecurrentSpec | None) -> tuple[int, int, int]:
    """How many heads a layer keeps in a slot, and how wide their keys and values are."""
    if mixer is None or mixer.kind == "recurrent":
        return 0, 0, 0
    if mixer.kind == "latent":
        return 1, mixer.cached, 0
    return (0, 0, 0) if mixer.keys_of is not None else (mixer.kv_heads, mixer.head_dim, mixer.head_dim)


def turned(cos: Tensor, sin: Tensor, places: Tensor, dtype: torch.dtype) -> Turns:
    """Tables of turns [places, pairs] as `network.attention.turn` takes them, for these places."""
    at = places.long()
    c, s = cos[at].to(dtype), sin[at].to(dtype)
    return torch.cat((c, c), -1)[:, None], torch.cat((-s, s), -1)[:, None]
