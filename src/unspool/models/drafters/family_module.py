"""Multi-token prediction modules whose layer is one of the model's own family: experts, latents, gates."""

from __future__ import annotations

from dataclasses import replace

from ..folder import stored_at
from ..shape import Shape
from .reading import Named


def family_shape(target: Shape) -> Shape | None:
    """The shape of a module's layer, if it is more than a plain one: the target's last layer that attends."""
    attends = [n for n, layer in enumerate(target.stack) if layer.mixer is not None and layer.mixer.kind != "recurrent"]
    if target.oddity() is None or target.interleaved or not attends:
        return None
    return replace(target.part(attends[-1:]), each=(target.stack[attends[-1]],), tied=False, filling=None)


def family_names(shape: Shape, at: str) -> dict[str, str]:
    """What a file calls the tensors of that layer, by our names; `at` is what theirs begin with."""
    found = {}
    for name, size in shape.layer_tensors(0).items():
        where = stored_at(f"model.layers.0.{name}", size, shape)
        found[f"layers.0.{name}"] = at + where.name.partition("layers.0.")[2]
    return found


def holds(named: Named, names: dict[str, str]) -> bool:
    """Whether a file has all of these tensors."""
    return all(name in named for name in names.values())
