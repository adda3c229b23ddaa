"""Published drafters that have no file format of their own: each a setting of the one description, by its paper's name.

They are written and read in unspool's own form: config.json says `model_type: unspool_drafter`, which of them it is and
its few numbers, and the tensors have our names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...core.errors import BadModel
from ..shape import Shape
from .description import Cell, DrafterFile, DrafterSpec, Join, Reads, needed, optional
from .reading import MOST_BLOCK, Named, assembled, bare_shape, fields_of, layer_shape
from .stored_drafter import StoredDrafter

MODEL_TYPE = "unspool_drafter"
MOST_DEPTH, MOST_LAYERS = 16, 16


@dataclass(frozen=True)
class DrafterSystem:
    """A system: what its paper calls it, how state and token meet, which heads follow, and its sizes unless told."""

    title: str
    join: Join
    reads: Reads = "state"
    cell: Cell = "concat"
    layers: int = 1
    blocks: int = 0
    experts: int = 0
    masked: bool = False  # whether it guesses a block of masks in one forward
    least: int = 1  # layers that it may have
    most: int = MOST_LAYERS

    def spec(self, target: Shape, layers: int, depth: int, mask: int) -> DrafterSpec:
        """Its description for a target."""
        if self.layers and not self.least <= layers <= self.most:
            raise BadModel(
                f"a {self.title} drafter of {layers} layers cannot be; expected {self.least} to {self.most}."
            )
        shape = bare_shape(MODEL_TYPE, target, target.dim)
        if self.layers:
            shape = replace(target, layers=layers, windows=(None,) * layers, tied=False)
        told = DrafterSpec(self.title, (target.layers,), shape, self.join, target.dim)
        if self.masked:
            told = replace(told, block=depth, mask=mask)
        elif (
            self.join in ("cells", "trigram") or self.experts
        ):  # the others guess token by token, as far as they are asked
            told = replace(told, depth=depth)
        return replace(
            told,
            reads=self.reads,
            cell=self.cell,
            blocks=self.blocks,
            experts=self.experts,
            recycles_normed=self.join in ("project", "cross"),
        )


FORMS: Mapping[str, DrafterSystem] = {
    "bpd": DrafterSystem("Blockwise parallel decoding", "cells", "state", "perceptron", 0),
    "hydra": DrafterSystem("Hydra", "cells", "state", "concat", 0),
    "hydra++": DrafterSystem("Hydra++", "cells", "layers", "concat", 1, blocks=3),
    "chimera": DrafterSystem("Chimera", "trigram", layers=1, most=1),
    "clover": DrafterSystem("Clover", "cells", "layers", "regress", 1),
    "clover2": DrafterSystem("Clover-2", "cells", "met", "regress", 2),
    "amphista": DrafterSystem("Amphista", "cells", "token", "encoder", 2, blocks=1),
    "flash": DrafterSystem("FLASH", "cells", "token", "slots", 1),
    "falcon": DrafterSystem("Falcon", "cells", "lstm", "slots", 1),
    "jakiro": DrafterSystem("Jakiro", "project", layers=1, experts=2),
    "dream": DrafterSystem("DREAM", "cross", layers=3, least=3, most=3),
    "recyclegpt": DrafterSystem("RecycleGPT", "project", layers=6),
    "llm-to-slm": DrafterSystem("LLM-to-SLM", "add", layers=4),
    "specdec": DrafterSystem("SpecDec", "add", layers=4, masked=True),
}


def read_form(stored: StoredDrafter, named: Named, target: Shape) -> DrafterFile:
    """A drafter in unspool's own form."""
    fields, source = fields_of(stored), stored.source
    name = fields.text("drafter", "")
    if name not in FORMS:
        raise BadModel(f"{source}: its drafter is {name!r:.40}, which is not known; these are: {', '.join(FORMS)}.")
    form, wide = FORMS[name], fields.whole("target_hidden_size", target.dim)
    if wide != target.dim:
        raise BadModel(f"{source}: reads hidden states {wide} wide, and the target's are {target.dim}.")
    if (known := fields.whole("vocab_size", target.vocab)) != target.vocab:
        raise BadModel(f"{source}: was trained for a vocabulary of {known} tokens, and the target has {target.vocab}.")
    if ("lift.up.weight" in named) != ("lift.down.weight" in named):
        raise BadModel(f"{source}: has one of lift.up.weight and lift.down.weight without the other; it is damaged.")
    depth = _bounded(stored, "depth", 4, min(MOST_DEPTH, MOST_BLOCK))
    layers = _bounded(stored, "layers", form.layers, form.most) if form.layers else 0
    mask = fields.get("mask_token_id") if form.masked else 0
    if not isinstance(mask, int) or isinstance(mask, bool) or not 0 <= mask < target.vocab:
        raise fields.fail("mask_token_id", f"a token of the target, 0 to {target.vocab - 1}")
    spec = form.spec(target, layers, depth, mask)
    if layers:
        group = fields_of(stored, "transformer_layer_config")
        shape = layer_shape(dict(group.values), source, named, target)
        if (shape.layers, shape.dim) != (layers, target.dim):
            raise BadModel(
                f"{source}: its layers are {shape.layers} of {shape.dim}; expected {layers} of {target.dim}. "
                "It was trained for another model, or the file is damaged."
            )
        if spec.join == "cells" and target.dim % shape.heads:
            raise BadModel(f"{source}: {shape.heads} heads do not divide a state of {target.dim}; the file is damaged.")
        spec = replace(spec, shape=shape)
    ours = (*needed(spec), *optional(spec, target.vocab, target.vocab))
    return assembled(spec, named, {**{name: name for name in ours}, "ids": "d2t", "known": "t2d"}, target)


def _bounded(stored: StoredDrafter, name: str, usual: int, most: int) -> int:
    count = fields_of(stored).whole(name, usual)
    if not 1 <= count <= most:
        raise BadModel(f"{stored.source}: {name} is {count}; expected 1 to {most}.")
    return count
