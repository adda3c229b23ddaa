"""What a family takes for granted where its config.json does not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..config_fields import ConfigFields
from ..shape import Shape

Finish = Callable[[Shape, ConfigFields], Shape]
"""Adds to a Shape what the words of Llama's config.json cannot say."""

SeesAll = Callable[[int, ConfigFields], bool]
"""Whether a layer sees all tokens, where the file does not list the layers' types."""


def nobody(layer: int, fields: ConfigFields) -> bool:
    """All layers are windowed, if any is."""
    return False


def every(count: int, key: str | None = None) -> SeesAll:
    """Each layer whose number, counted from 1, is a multiple; of the setting `key`, where there is one."""

    def sees_all(layer: int, fields: ConfigFields) -> bool:
        return (layer + 1) % (count if key is None else fields.whole(key, count)) == 0

    return sees_all


def from_the_first(usual: int) -> SeesAll:
    """The first `max_window_layers` layers."""

    def sees_all(layer: int, fields: ConfigFields) -> bool:
        first = fields.get("max_window_layers")
        return layer < (first if isinstance(first, int) else usual)

    return sees_all


@dataclass(frozen=True)
class Usual:
    """Defaults and habits of a family.

    `biases` names what `attention_bias` gives a bias ("qkv", "out"), "always" if queries, keys and values have one
    anyway, and "mlp" if there may be one in the perceptron. Layers are windowed never, always, or if
    `use_sliding_window` asks for it; `window` is how wide where the key is absent, and `typed` whether `layer_types`
    counts, with `kinds` beside the usual two. `part` is how much of a head turns, None where a family has no such
    setting; if `proportional`, the other pairs stand still in their places.
    `old_longrope` if files call it by its older names. `given` is what the family's class has for absent settings.
    """

    theta: float = 10_000.0
    local_theta: float | None = None
    eps: float = 1e-6
    head_dim: int | None = None
    context: int | None = None
    tied: bool = False
    biases: tuple[str, ...] = ("qkv", "out")
    bias_default: bool = False
    activation: str | None = None
    sliding: Literal["never", "always", "asked"] = "never"
    window: int | None = 4096
    typed: bool = False
    kinds: tuple[str, ...] = ()
    sees_all: SeesAll = nobody
    part: float | None = None
    proportional: bool = False
    old_longrope: bool = False
    given: Mapping[str, object] = field(default_factory=dict)
