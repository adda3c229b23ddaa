"""The table of hybrid and latent families: how each one's settings are told as Llama's, and what is added to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from . import hybrid, latent, mamba_families
from .config_fields import ConfigFields
from .shape import Shape


class Hybrid(NamedTuple):
    """`settings` are those of the Llama model with its attention; `shaped` adds the rest to the shape of that."""

    settings: Callable[[ConfigFields], Mapping[str, object]]
    shaped: Callable[[Shape, ConfigFields], Shape]


_LFM2 = Hybrid(hybrid.lfm2_settings, hybrid.lfm2)
_QWEN = Hybrid(hybrid.qwen_settings, hybrid.qwen)
_LATENT = Hybrid(latent.settings, latent.latent)

HYBRIDS: Mapping[str, Hybrid] = {
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
    "qwen3_next": _QWEN,
    "qwen3_5_text": _QWEN,
    "qwen3_5_moe_text": _QWEN,
    "granitemoehybrid": Hybrid(mamba_families.granite_settings, mamba_families.granite),
    "nemotron_h": Hybrid(mamba_families.nemotron_settings, mamba_families.nemotron),
    "deepseek_v3": _LATENT,
    "glm4_moe_lite": _LATENT,
    "minicpm3": _LATENT,
}
